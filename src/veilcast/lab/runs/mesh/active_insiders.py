"""Runs with active insiders on the real machines: the gain of a coalition that does more than watch.

Each script (`veilcast.sim.insiders`) is run beside a control: the same coalition in the same network, which only
watches ("watching"). The result of an attack is to be compared with the control's.

- timing, quitting: how well the coalition ranks its honest neighbours, readers before others (`auc`);
- siege: the same for victims that have only hostile neighbours, and whether their publisher is found (`success`);
- refusing: swaps that honest nodes initiated (`swaps`); crawling: the share of V_a known by name (`known`);
- bogus: the share of honest nodes of the mesh that receive the topic from the coalition (`captured`);
- tagging: altered notifications that were accepted (`accepted`); replay: copies that honest nodes sent of a replayed
  notification (`effects`, for each replayed one);
- all of them: the share of notifications that readers received (`delivered`).

`run_grinding` runs one insider that grinds addresses. Its steps are seconds of the attack. Two measures at each step:
whether the insider names the publisher (`success`), and the share of the publications of the last five minutes that the
publisher itself handed to the insider (`first_hand`). The null control ("watching") is the same insider without new
addresses. The positive control is `first_relay = "any"`: nodes rank their neighbours' addresses, as they did in an
earlier version.

A scenario is a small world drawn from the seed, with roles and a coalition. The link layer is off: members are at the
ends of their links anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from veilcast.lab.experiment.mesh_params import MeshActive, MeshGrinding
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.ranking import auc
from veilcast.lab.runs.mesh.mesh_simulation import FAST_HARDENING
from veilcast.machine import Address, Delivered, Event, Machine
from veilcast.mesh.config import FirstRelayConfig, MeshConfig, ShellGameConfig
from veilcast.sim.checkers import Checker
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.insiders.address_grinder import FORMING_S, SECOND_US, TURN_S, GrindingRun
from veilcast.sim.insiders.attacks import (
    Besieger,
    BogusSetInsider,
    CrawlingInsider,
    IntermittentInsider,
    RefusingInsider,
    ReplayingInsider,
    SiegeKnowledge,
    TaggingInsider,
    make_eager,
)
from veilcast.sim.insiders.insider import ActiveInsider, InfiltratedPopulation, InsiderScript
from veilcast.sim.insiders.timing_probes import ANSWER_TIMEOUT_US, ProbeSchedule, ProbingInsider
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.checkers import mesh_node_at
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World

PlayedInsider = TypeVar("PlayedInsider", bound=ActiveInsider)


class InsiderScenario:
    """The overlay of a seed, and roles for the nodes that are not in the coalition."""

    def __init__(self, params: MeshActive, seed: int) -> None:
        self.params, self.seed = params, seed
        self.hardened = params.kappa > 0
        self.first_us = (_FORMING_HARDENED if self.hardened else _FORMING) * PERIOD_US
        self._rng = derive_rng(seed, "stage")
        self._plain = MeshPopulation(
            params.nodes,
            params.degree,
            params.rewire,
            params.ratio,
            mesh=self.mesh,
            cover_share=params.kappa,
            checks=(),
        )
        self.addresses = self._plain.addresses()
        draft = self._infiltrated(self.addresses[0], self.addresses[1:2], (), lambda node, _: node, 0, 1)
        self.neighbours = draft.neighbours_of(seed)

    def draw_roles(self) -> tuple[Address, tuple[Address, ...], tuple[Address, ...]]:
        """A publisher, readers, and a coalition that has neither role."""
        many = round(self.params.insiders * self.params.nodes)
        publisher, *others = self._rng.sample(self.addresses, self._readers + many + 1)
        return publisher, tuple(others[: self._readers]), tuple(others[self._readers :])

    def draw_siege(self) -> tuple[Address, tuple[Address, ...], tuple[Address, ...], tuple[Address, ...]]:
        """The same around victims, all of whose neighbours are hostile. Victims are the publisher, readers and others,
        as many of each. Victims share no neighbours, and no victim is a neighbour of another."""
        victims: list[Address] = []
        near: dict[Address, None] = {}
        for address in self._rng.sample(self.addresses, len(self.addresses)):
            around = self.neighbours[address]
            if (
                len(victims) < VICTIM_COUNT
                and address not in near
                and not any(n in near or n in victims for n in around)
            ):
                victims.append(address)
                near |= dict.fromkeys(around)
        publisher, readers = victims[0], victims[1 : 1 + len(victims) // 2]
        free = [address for address in self.addresses if address not in near and address not in victims]
        return publisher, (*readers, *free[: self._readers]), tuple(near), tuple(victims)

    def start_run(
        self,
        roles: tuple[Address, tuple[Address, ...], tuple[Address, ...]],
        script: InsiderScript,
        notes: int,
        every_us: int,
        *,
        joins: bool = False,
        told: MeshConfig | None = None,
    ) -> InsiderRun:
        """If `joins` is true, the coalition subscribes to the topic, too."""
        people = msgspec.structs.replace(
            self._infiltrated(*roles, script, notes, every_us), coalition_subscribes=joins, coalition_config=told
        )
        links = LinkDelays(latency_us=(PERIOD_US // 100, PERIOD_US // 10))
        world = World(seed=self.seed, links=links, epoch_us=EPOCH_US)
        played = InsiderRun(world, people)
        people.populate(world, 0)
        return played

    @property
    def _readers(self) -> int:
        return max(1, round(self.params.ratio * self.params.nodes))

    @property
    def mesh(self) -> MeshConfig:
        """The configuration of honest nodes."""
        game = ShellGameConfig()
        if self.params.game == "events":
            wait_us = round(self.params.wait_s * 1_000_000)
            game = ShellGameConfig(start="child", first="exponential", wait_us=wait_us, rate=self.params.decay)
        return MeshConfig(
            profile="hardened" if self.hardened else "paper",
            heartbeat_us=PERIOD_US,
            neighbours_max=self.params.degree + 24,
            address_bytes_max=8,
            shellgame=game,
            hardening=FAST_HARDENING,
        )

    def _infiltrated(
        self,
        publisher: Address,
        readers: tuple[Address, ...],
        coalition: tuple[Address, ...],
        script: InsiderScript,
        notes: int,
        every_us: int,
    ) -> InfiltratedPopulation:
        fields = msgspec.structs.asdict(self._plain) | {
            "notes": notes, "first_us": self.first_us, "every_us": every_us,
        }  # fmt: skip
        return InfiltratedPopulation(
            **fields, publisher=publisher, subscriber_addresses=readers, coalition=coalition, script=script
        )


class InsiderRun(Checker):
    """A running network, and the notifications that its readers received."""

    def __init__(self, world: World, people: InfiltratedPopulation) -> None:
        self.world, self.people = world, people
        self.got: dict[tuple[Address, bytes], int] = {}
        world.watch(self)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address in self.people.subscriber_addresses:
            place = address, event.note.publication.body
            self.got[place] = self.got.get(place, 0) + 1

    def run(self, duration_us: int) -> None:
        self.world.run(duration_us)

    def insiders_playing(self, script: type[PlayedInsider]) -> list[PlayedInsider]:
        """The members of the coalition that play this script."""
        return [machine for name in self.people.coalition if isinstance(machine := self.world.machine(name), script)]

    def honest_nodes(self) -> list[Address]:
        return [address for address in self.people.addresses() if address not in self.people.coalition]

    def delivered_share(self) -> dict[str, float]:
        """The share of notifications that readers received."""
        return {
            "delivered": (len(self.got) - self.count_false())
            / (self.people.notes * len(self.people.subscriber_addresses))
        }

    def count_false(self) -> int:
        """Number of deliveries of notifications that were never published, or that were delivered before."""
        published = {b"note %d" % number for number in range(self.people.notes)}
        return sum(times - (body in published) for (_, body), times in self.got.items())

    def auc(self, scores: Mapping[Address, float]) -> dict[str, float]:
        """AUC of readers against others, among the honest nodes that were examined."""
        looked = [name for name in scores if name not in self.people.coalition and name != self.people.publisher]
        reads = np.array([name in self.people.subscriber_addresses for name in looked])
        ranked = auc(np.array([scores[name] for name in looked]), reads)
        return {"auc": ranked, "looked_at": float(len(looked)), "base_rate": float(reads.mean()) if looked else 0.0}


PERIOD_US: Final = 1_000_000
_FORMING: Final = 20
"""Heartbeats until a mesh is complete."""
_FORMING_HARDENED: Final = 80
EPOCH_US: Final = 600 * PERIOD_US
VICTIM_COUNT: Final = 9
"""The publisher, and equal numbers of readers and others."""

InsiderAct: TypeAlias = Callable[[InsiderScenario, bool], dict[str, float]]
"""Runs a script on a scenario, or the same coalition watching. Returns measures by metric."""


def run(params: MeshActive, seed: int, data: Path | None = None) -> list[Measure]:
    """One script, and the control beside it."""
    act = INSIDER_ACTS[params.script]
    return [
        Measure(attack, metric, 0, value)
        for attack, acts in ((params.script, True), ("watching", False))
        for metric, value in act(InsiderScenario(params, seed), acts).items()
    ]


def run_grinding(params: MeshGrinding, seed: int, data: Path | None = None) -> list[Measure]:
    rules = msgspec.structs.replace(FAST_HARDENING, relay=FirstRelayConfig(rule=params.first_relay))
    found: list[Measure] = []
    for attack, turn in (("grinding", TURN_S), ("watching", 0)):
        ground = GrindingRun(seed, rules, turn * SECOND_US, nodes=params.nodes, kappa=params.kappa).run(FORMING_S)
        before = 0
        for step in sorted(params.steps):
            ground.run(round(step) - before)
            before = round(step)
            found.append(Measure(attack, "success", step, float(ground.is_publisher_guessed(GUESS_WINDOW_S))))
            found.append(Measure(attack, "first_hand", step, ground.first_hand_share(GUESS_WINDOW_S)))
    return found


def _timing(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.draw_roles()
    beside = {name: insider for insider in coalition for name in stage.neighbours[insider] if name not in coalition}
    survey = ProbeSchedule(beside if acts else {}, START_US + stage.first_us + 4 * PERIOD_US)
    seconds = _PROBE * len(beside)
    played = stage.start_run(
        (publisher, readers, coalition),
        lambda node, birth: ProbingInsider(node, birth.address, survey),
        2 * seconds,
        PERIOD_US // 2,
    )
    played.run(stage.first_us + seconds * PERIOD_US)
    # A node that was not asked, or did not answer, has not shown that it receives notifications.
    return (
        played.auc({name: -float(survey.delay_us.get(name, ANSWER_TIMEOUT_US)) for name in beside})
        | played.delivered_share()
    )


def _quitting(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.draw_roles()
    turn_us = _TURN * PERIOD_US if acts else 0

    def script(node: Machine, birth: Birth) -> IntermittentInsider:
        odd = coalition.index(birth.address) % 2 == 1
        return IntermittentInsider(node, START_US + stage.first_us, turn_us, odd=odd)

    played = stage.start_run((publisher, readers, coalition), script, 3 * _TURNS, _TURN * PERIOD_US // 3)
    played.run(stage.first_us + _TURNS * _TURN * PERIOD_US)
    asked = {name: 0.0 for insider in coalition for name in stage.neighbours[insider]}
    for actor in played.insiders_playing(IntermittentInsider):
        for name in actor.requesters:
            asked[name] = asked.get(name, 0.0) + 1
    return played.auc(asked) | played.delivered_share()


def _siege(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    publisher, readers, coalition, victims = stage.draw_siege()
    siege = SiegeKnowledge(victims if acts else ())
    played = stage.start_run((publisher, readers, coalition), lambda node, _: Besieger(node, siege), _NOTES, PERIOD_US)
    played.run(stage.first_us + 2 * _NOTES * PERIOD_US)
    found = max(victims, key=lambda name: siege.originated.get(name, 0))
    wanted = played.auc({name: float(name in siege.unprompted_requesters) for name in victims})
    return wanted | {"success": float(found == publisher)} | played.delivered_share()


def _refusing(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    played = stage.start_run(
        stage.draw_roles(),
        lambda node, _: (RefusingInsider if acts else CrawlingInsider)(node),
        _NOTES,
        4 * PERIOD_US,
        joins=True,
    )
    return _games(stage, played)


def _crawling(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    told = make_eager(stage.mesh) if acts else None
    played = stage.start_run(
        stage.draw_roles(), lambda node, _: CrawlingInsider(node), _NOTES, 4 * PERIOD_US, joins=True, told=told
    )
    return _games(stage, played)


def _bogus(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.draw_roles()

    def script(node: Machine, birth: Birth) -> CrawlingInsider:
        friends = [name for name in coalition if name != birth.address]
        return BogusSetInsider(node, friends) if acts else CrawlingInsider(node)

    return _games(stage, stage.start_run((publisher, readers, coalition), script, _NOTES, 4 * PERIOD_US, joins=True))


def _games(stage: InsiderScenario, played: InsiderRun) -> dict[str, float]:
    played.run(stage.first_us + (4 * _NOTES + 8) * PERIOD_US)
    token = played.people.token(played.world)
    members = [name for name in played.people.mesh_members(played.world) if name not in played.people.coalition]
    known = {name for actor in played.insiders_playing(CrawlingInsider) for name in actor.names}
    swaps, captured = 0, 0
    for name in played.honest_nodes():
        if (node := mesh_node_at(played.world, name)) is not None:
            swaps += node.overlay.policy.swaps_completed()
            parents = node.overlay.branches.inward(token)
            captured += name in members and any(parent in played.people.coalition for parent in parents)
    among = max(1, len(members))
    return {
        "swaps": float(swaps),
        "known": sum(name in known for name in members) / among,
        "captured": captured / among,
    } | played.delivered_share()


def _tagging(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    def script(node: Machine, birth: Birth) -> ActiveInsider:
        return TaggingInsider(node, birth.rng) if acts else ActiveInsider(node)

    played = stage.start_run(stage.draw_roles(), script, _NOTES, PERIOD_US, joins=True)
    played.run(stage.first_us + 2 * _NOTES * PERIOD_US)
    return {"accepted": float(played.count_false())} | played.delivered_share()


def _replay(stage: InsiderScenario, acts: bool) -> dict[str, float]:
    later_us = 2 * _NOTES * PERIOD_US

    def script(node: Machine, birth: Birth) -> ActiveInsider:
        return ReplayingInsider(node, later_us) if acts else ActiveInsider(node)

    played = stage.start_run(stage.draw_roles(), script, _NOTES, PERIOD_US, joins=True)
    played.run(stage.first_us + later_us)
    before = _copies(played)
    played.run(later_us)
    echoed = sum(actor.replayed for actor in played.insiders_playing(ReplayingInsider)) if acts else 0
    return {"effects": (_copies(played) - before) / max(1, echoed), "echoed": float(echoed)} | played.delivered_share()


def _copies(played: InsiderRun) -> int:
    """Number of copies of notifications that honest nodes have sent."""
    nodes = (mesh_node_at(played.world, name) for name in played.honest_nodes())
    return sum(node.sent["Notify"] for node in nodes if node is not None)


GUESS_WINDOW_S: Final = 300
"""Seconds of publications that the insider's guess is based on."""
_NOTES: Final = 20
_PROBE: Final = 7
"""Seconds for one question, its answer, and a pause."""
_TURN: Final = 15
"""Heartbeats of one turn of silence: longer than nodes wait for a neighbour."""
_TURNS: Final = 12
INSIDER_ACTS: Final[Mapping[str, InsiderAct]] = {
    "timing": _timing,
    "quitting": _quitting,
    "siege": _siege,
    "refusing": _refusing,
    "crawling": _crawling,
    "bogus": _bogus,
    "tagging": _tagging,
    "replay": _replay,
}
_OF_THE_GAME: Final = ("refusing", "crawling", "bogus")

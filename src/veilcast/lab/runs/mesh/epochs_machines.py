"""Runs over epochs on the real machines: the cost of a notification in a mesh that is laid again in each epoch.

The models draw the insiders, and the nodes that are away in each epoch (`models.epochs`). In every epoch one
notification is published once the mesh is complete. The paper's mesh is a new simulation in each epoch, of the nodes
that are present: new adverts, new subscriptions, no state kept. The hardened mesh is one simulation over all epochs,
since it keeps state: its root, the nodes that cover, parents, and relays for one epoch more. Nodes that will be away in
the next epoch stop, and nodes that return restart, after the next root was called for and before its mesh begins to
form.

Hops are measured by the clock: every link takes the same time, and a notification waits nowhere. Bytes are one cell for
each message. Differences from the models: the machines elect the root, in an epoch before the first, in which all nodes
are present; so relays stay from the first epoch on. A publisher whose successor is away publishes nothing in that
epoch, because it could not send it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.authority.epoch import epoch_of
from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.delivery_cost import delivery_cost
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.keyed_draws import WRITES, draw_share
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.mesh.attack_suite import choose_attackers, score_tables
from veilcast.lab.runs.mesh.coalition_training import train_coalition_classifiers
from veilcast.lab.runs.mesh.epoch_setup import average_epochs, make_policy, settle_people
from veilcast.lab.runs.mesh.epoch_tables import RUN, EpochTables
from veilcast.lab.runs.mesh.insider_tap import InsiderTap
from veilcast.lab.runs.mesh.mesh_simulation import FAST_HARDENING, MeshSimulation, node_address, node_number
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.keyrings import KEYRING_EPOCHS
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire.geometry import CELL, NEIGHBOURS_MAX
from veilcast.wire.mesh import Notify, Stem, StemReceipt


def run(
    params: MeshEpochs, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    if params.cover != "none" or params.games or params.origin != "kept":
        raise ConfigError("over epochs the machines run the baseline or a hardened mesh")
    if params.departures or params.relay_epochs or params.cover_life:
        raise ConfigError("over epochs the machines' publishers send at once, and their first relays and covers stay")
    if params.steady and (params.hold or params.parcels or params.notes < 1):
        raise ConfigError("over epochs the machines' notes wait only where publishers come and go: steady = false")
    if params.attacks and (not params.kappa or set(params.attacks) - set(_OVERHEARD)):
        raise ConfigError(f"the machines show a hardened mesh to insiders: {', '.join(_OVERHEARD)}")
    people = settle_people(params, seed, data)
    policy = MeshPolicy() if params.steady else MeshPolicy(origin="elected")
    drawn = list(run_epochs(people, policy, int(params.steps[-1])))
    found: list[Measure] = []
    before: list[dict[str, float]] = []
    coalition = RecordedCoalition(people) if params.attacks else None
    for facts in _run_hardened(people, drawn, params, coalition) if params.kappa else _run_paper(people, drawn):
        before.append(facts)
        if len(before) in params.steps:
            found += average_epochs(before, len(before))
    if coalition is not None:
        attackers = choose_attackers(params)
        tables = EpochTables(params, people, make_policy(params), attackers, epoch_us=choose_pace(params).epoch_us)
        coalition.write_tables(tables)
        trained = train_coalition_classifiers(people, params, params.attacks, data)
        found += score_tables(tables, attackers, params, seed, trained, recorder)
    return found


class Pace(NamedTuple):
    """How fast the epochs of a run are. Small networks form their mesh sooner, so that months of them can be run."""

    hardening: HardeningConfig
    epoch: int
    """Heartbeats of an epoch."""

    @property
    def epoch_us(self) -> int:
        return self.epoch * PERIOD_US

    @property
    def called(self) -> int:
        """Heartbeats of an epoch after which the root of the next one was called for."""
        return 2 * self.hardening.lead_periods + 2

    def config(self, params: MeshEpochs, *, is_insider: bool = False) -> MeshConfig:
        """Insiders neither cover nor stand for election, as in the models."""
        hardening = msgspec.structs.replace(
            self.hardening,
            parcel_periods=_STRETCH if params.parcels else 0,
            hold_back_epochs=float(params.hold),
            covers=not is_insider,
            volunteer=not is_insider,
        )
        return msgspec.structs.replace(HARDENED_MESH, hardening=hardening)


def choose_pace(params: MeshEpochs) -> Pace:
    return _QUICK if params.nodes <= _SMALL and not params.steady else _USUAL


class RecordedCoalition:
    """Insiders of a simulation, and what they know of each of its epochs."""

    def __init__(self, people: Population) -> None:
        self._people = people
        self.tap = InsiderTap(
            map(node_address, np.flatnonzero(people.insiders).tolist()), HARDENED_MESH.heartbeat_bytes, RUN
        )
        self._present: list[NDArray[np.bool_]] = []
        self._origin: list[int] = []

    def learn_tokens(self, simulation: MeshSimulation, count: int) -> None:
        """Insiders hold the topic's key, and so know its tokens."""
        first = epoch_of(simulation.world.now, simulation.keyring.epoch_us) + 1
        self.tap.epoch_of_token |= {
            simulation.keyring.keys_at(first + number).topic(TOPIC).token: number for number in range(count)
        }

    def observe_epoch(self, present: NDArray[np.bool_], roots: list[int]) -> None:
        """Called when the mesh of an epoch is complete: all nodes know which nodes are present, and the root. If there
        is no root, insiders assume the last one; before the first one, a node of their own."""
        self._present.append(present)
        self._origin += roots[:1] or self._origin[-1:] or [int(np.argmax(self._people.insiders))]

    def write_tables(self, tables: EpochTables) -> None:
        for number, (present, root) in enumerate(zip(self._present, self._origin, strict=True)):
            tables.record_presence(number, present, root)
        nodes = [node_address(number) for number in range(self._people.graph.nodes)]
        tables.record_insiders([row for row in self.tap.rows if row.epoch < len(self._present)], nodes)


def _run_paper(people: Population, drawn: list[Epoch]) -> Iterator[dict[str, float]]:
    config = MeshConfig(heartbeat_us=PERIOD_US, neighbours_max=NEIGHBOURS_MAX, address_bytes_max=8)
    for epoch in drawn:
        watch = _Watch()
        here = (epoch.graph, people.publisher, people.subscribers)
        seed = int(stream(people.seed, "town", epoch.number)[0])
        simulation = MeshSimulation(here, config, seed, latency_us=(HOP_US,), on_event=watch)
        simulation.run(_FORMING)
        yield _measure_publication(simulation, watch, epoch.present)


def _run_hardened(
    people: Population, drawn: list[Epoch], params: MeshEpochs, coalition: RecordedCoalition | None
) -> Iterator[dict[str, float]]:
    pace = choose_pace(params)
    outfits = {int(node): pace.config(params, is_insider=True) for node in people.insiders.nonzero()[0]}
    watch = _Watch()
    here = (people.graph, people.publisher, people.subscribers)
    simulation = MeshSimulation(
        here,
        pace.config(params),
        people.seed,
        latency_us=(HOP_US,),
        epoch_us=pace.epoch_us,
        kappa=params.kappa,
        key_epochs=max(KEYRING_EPOCHS, len(drawn) + 2 + params.hold),
        outfits=outfits,
        on_event=watch,
        checkers=() if coalition is None else (coalition.tap,),
    )
    if coalition is not None:
        coalition.learn_tokens(simulation, len(drawn))
    successor = _first_relay(simulation)
    writes = draw_share(people.key("notes"), WRITES, len(drawn), 0, params.notes)
    for number, epoch in enumerate(drawn):
        _run_until(simulation, number * pace.epoch + pace.called)
        present = _leave_and_return(simulation, epoch.present)
        _run_until(simulation, (number + 1) * pace.epoch + 1)
        if coalition is not None:
            coalition.observe_epoch(present, _roots(simulation))
        if not params.steady:
            if present[people.publisher] and writes[number]:
                simulation.publish(watch.next())
            yield watch.facts() | {"overlay": float(len(simulation.members()))}
        elif successor is None or present[successor]:
            yield {"waits": 0.0} | _measure_publication(simulation, watch, present)
        else:
            size = len(simulation.members())
            yield {"waits": 1.0, "overlay": float(size), "notes": float(size - 1)}


def _measure_publication(simulation: MeshSimulation, watch: _Watch, present: NDArray[np.bool_]) -> dict[str, float]:
    """The cost of the next publication: messages by kind, hops, and the share of present readers that receive it."""
    before, since_us = simulation.count_sent(), simulation.world.now
    simulation.publish(watch.next())
    simulation.run(_THROUGH)
    sent = simulation.count_sent()
    notes, stem, answers = (float(sent[kind.__name__] - before[kind.__name__]) for kind in (Notify, Stem, StemReceipt))
    there = int(np.count_nonzero(present[simulation.subscribers]))
    messages, delivered = notes + stem + answers, len(watch.delivered)
    facts = {
        "overlay": float(len(simulation.members())),
        "notes": notes,
        "messages": messages,
        "reached": delivered / max(1, there),
    }
    if stem:
        facts["stem"] = stem
    if watch.delivered:
        facts["hops"] = mean(at_us - since_us for at_us in watch.delivered.values()) / HOP_US
        facts |= delivery_cost(messages, CELL, delivered, facts["hops"], HOP_US / 1e6)
    return facts


def _leave_and_return(simulation: MeshSimulation, drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Stop the nodes that are to be away, except the root, and restart the nodes that return. Returns the nodes that
    are present from now on."""
    present = drawn.copy()
    present[_roots(simulation)] = True
    for number, is_there in enumerate(present):
        if is_there:
            simulation.world.restart(node_address(number))
        else:
            simulation.world.crash(node_address(number))
    return present


def _roots(simulation: MeshSimulation) -> list[int]:
    token = simulation.token
    return [number for number, node in simulation.nodes() if node.overlay.originates(token)]


def _first_relay(simulation: MeshSimulation) -> int | None:
    """The first relay of the publisher's notifications. While it is away, they are not sent."""
    known = [node_address(int(near)).encode() for near in simulation.graph.neighbours(simulation.publisher)]
    first = StickyChoices(simulation.keyring.membership.link).choose_first_relay(known)
    return None if first is None else node_number(Address(first.decode()))


def _run_until(simulation: MeshSimulation, period: int) -> None:
    simulation.world.run(simulation.world.start + period * PERIOD_US - simulation.world.now)


class _Watch:
    """Records the receivers of the last publication, and when each received it. Earlier publications may still be in
    transit."""

    def __init__(self) -> None:
        self.delivered: dict[Address, int] = {}
        self._came: dict[bytes, None] = {}
        self._number = 0

    def facts(self) -> dict[str, float]:
        """The share of all publications so far that some subscriber has."""
        return {"reached": len(self._came) / self._number} if self._number else {}

    def next(self) -> bytes:
        """The body of the next publication."""
        self.delivered = {}
        self._number += 1
        return b"note %d" % self._number

    def __call__(self, name: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._came[event.note.publication.body] = None
            if event.note.publication.body == b"note %d" % self._number:
                self.delivered.setdefault(name, now)


PERIOD_US: Final = 1_000_000
"""The heartbeat."""
HOP_US: Final = 10_000
_HASTY: Final = msgspec.structs.replace(FAST_HARDENING, lead_periods=24, grace_periods=4)
"""Shortest possible epochs."""
HARDENED_MESH: Final = MeshConfig(
    profile="hardened",
    heartbeat_us=PERIOD_US,
    neighbours_max=NEIGHBOURS_MAX,
    address_bytes_max=8,
    hardening=_HASTY,
)
_OVERHEARD: Final = ("group-testing", "linear", "binned", "predecessor", "presence", "sender")
_EPOCH: Final = 4 * _HASTY.lead_periods
EPOCH_US: Final = _EPOCH * PERIOD_US
_USUAL: Final = Pace(_HASTY, _EPOCH)
_QUICK: Final = Pace(
    msgspec.structs.replace(
        _HASTY,
        window_periods=6,
        lead_periods=10,
        grace_periods=2,
        follow_periods=1,
        call_periods=24,
        patience_periods=6,
    ),
    40,
)
_SMALL: Final = 64
"""Nodes whose floods take no more than six heartbeats."""
_STRETCH: Final = 4
"""Heartbeats of a stretch of parcels: as short as possible."""
_FORMING: Final = 25
"""Heartbeats after which the paper's mesh is complete."""
_THROUGH: Final = 3
"""Heartbeats after which a notification has reached all of its readers."""

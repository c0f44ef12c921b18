"""Runs with active insiders, on the real machines: what a coalition gains by doing more than watching.

Each script (`veilcast.sim.active`) is run beside the same coalition in the same network that only watches ("watching"),
and what an attack reached is to be held against that.

- timing, quitting: how well the coalition orders its honest neighbours, readers before others (`auc`);
- siege: the same of victims who have hostile neighbours only, and whether their publisher is found (`success`);
- refusing: swaps in which honest nodes took the lead (`swaps`); crawling: the share of V_a known by name (`known`);
- bogus: the share of honest nodes of the mesh that have the topic from the coalition (`captured`);
- tagging: changed notes that were taken for true (`accepted`); replay: copies that honest nodes sent of notes that came
  to them again (`effects`, for each of those). And for all of these the share of notes that readers got (`delivered`);
- grinding: see `grinding_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from veilcast.errors import ConfigError
from veilcast.lab.sweep import grinding_runs
from veilcast.lab.sweep.active_stage import PERIOD_US, Played, Stage
from veilcast.lab.sweep.params import Measure, Params
from veilcast.machine import Machine
from veilcast.sim.active.besieging import Besieger, Siege
from veilcast.sim.active.marking import Echo, Tagger
from veilcast.sim.active.mouth import Mouth
from veilcast.sim.active.quitting import Quitter
from veilcast.sim.active.swapping import Crawler, Liar, Refuser, eager
from veilcast.sim.active.timing import PATIENCE_US, Prober, Survey
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.mesh_checkers import node_at

Act: TypeAlias = Callable[[Stage, bool], dict[str, float]]
"""A script on a stage, or the same coalition watching; what came of it, by metric."""


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    """One script, and beside it those who only watch."""
    if params.script == "grinding":
        return grinding_runs.run(params, seed)
    act = ACTS.get(params.script)
    if act is None:
        raise ConfigError(f"script must be one of {', '.join(ACTS)}, not {params.script!r}")
    params.heed("active insiders", "script", "kappa", "insiders", "game")
    if params.graph != "small-world":
        raise ConfigError("active insiders live in small worlds")
    if params.script in _OF_THE_GAME and params.game != "events":
        raise ConfigError(f'script = "{params.script}" is for a shell game: game = "events"')
    return [
        Measure(attack, metric, 0, value)
        for attack, acts in ((params.script, True), ("watching", False))
        for metric, value in act(Stage(params, seed), acts).items()
    ]


def _timing(stage: Stage, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.drawn()
    beside = {name: insider for insider in coalition for name in stage.neighbours[insider] if name not in coalition}
    survey = Survey(beside if acts else {}, START_US + stage.first_us + 4 * PERIOD_US)
    seconds = _PROBE * len(beside)
    played = stage.play(
        (publisher, readers, coalition),
        lambda node, birth: Prober(node, birth.address, survey),
        2 * seconds,
        PERIOD_US // 2,
    )
    played.run(stage.first_us + seconds * PERIOD_US)
    # Whom nobody asked, and who did not ask, has not shown that it has notes.
    return played.auc({name: -float(survey.delay_us.get(name, PATIENCE_US)) for name in beside}) | played.delivered()


def _quitting(stage: Stage, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.drawn()
    turn_us = _TURN * PERIOD_US if acts else 0

    def script(node: Machine, birth: Birth) -> Quitter:
        odd = coalition.index(birth.address) % 2 == 1
        return Quitter(node, START_US + stage.first_us, turn_us, odd=odd)

    played = stage.play((publisher, readers, coalition), script, 3 * _TURNS, _TURN * PERIOD_US // 3)
    played.run(stage.first_us + _TURNS * _TURN * PERIOD_US)
    asked = {name: 0.0 for insider in coalition for name in stage.neighbours[insider]}
    for actor in played.actors(Quitter):
        for name in actor.asked:
            asked[name] = asked.get(name, 0.0) + 1
    return played.auc(asked) | played.delivered()


def _siege(stage: Stage, acts: bool) -> dict[str, float]:
    publisher, readers, coalition, victims = stage.besieged()
    siege = Siege(victims if acts else ())
    played = stage.play((publisher, readers, coalition), lambda node, _: Besieger(node, siege), _NOTES, PERIOD_US)
    played.run(stage.first_us + 2 * _NOTES * PERIOD_US)
    found = max(victims, key=lambda name: siege.began.get(name, 0))
    wanted = played.auc({name: float(name in siege.wanted) for name in victims})
    return wanted | {"success": float(found == publisher)} | played.delivered()


def _refusing(stage: Stage, acts: bool) -> dict[str, float]:
    played = stage.play(
        stage.drawn(), lambda node, _: (Refuser if acts else Crawler)(node), _NOTES, 4 * PERIOD_US, joins=True
    )
    return _games(stage, played)


def _crawling(stage: Stage, acts: bool) -> dict[str, float]:
    told = eager(stage.mesh) if acts else None
    played = stage.play(stage.drawn(), lambda node, _: Crawler(node), _NOTES, 4 * PERIOD_US, joins=True, told=told)
    return _games(stage, played)


def _bogus(stage: Stage, acts: bool) -> dict[str, float]:
    publisher, readers, coalition = stage.drawn()

    def script(node: Machine, birth: Birth) -> Crawler:
        friends = [name for name in coalition if name != birth.address]
        return Liar(node, friends) if acts else Crawler(node)

    return _games(stage, stage.play((publisher, readers, coalition), script, _NOTES, 4 * PERIOD_US, joins=True))


def _games(stage: Stage, played: Played) -> dict[str, float]:
    played.run(stage.first_us + (4 * _NOTES + 8) * PERIOD_US)
    token = played.people.token(played.world)
    members = [name for name in played.people.members(played.world) if name not in played.people.coalition]
    known = {name for actor in played.actors(Crawler) for name in actor.names}
    swaps, captured = 0, 0
    for name in played.honest():
        if (node := node_at(played.world, name)) is not None:
            swaps += node.overlay.policy.played()
            parents = node.overlay.branches.inward(token)
            captured += name in members and any(parent in played.people.coalition for parent in parents)
    among = max(1, len(members))
    return {
        "swaps": float(swaps),
        "known": sum(name in known for name in members) / among,
        "captured": captured / among,
    } | played.delivered()


def _tagging(stage: Stage, acts: bool) -> dict[str, float]:
    def script(node: Machine, birth: Birth) -> Mouth:
        return Tagger(node, birth.rng) if acts else Mouth(node)

    played = stage.play(stage.drawn(), script, _NOTES, PERIOD_US, joins=True)
    played.run(stage.first_us + 2 * _NOTES * PERIOD_US)
    return {"accepted": float(played.false())} | played.delivered()


def _replay(stage: Stage, acts: bool) -> dict[str, float]:
    later_us = 2 * _NOTES * PERIOD_US

    def script(node: Machine, birth: Birth) -> Mouth:
        return Echo(node, later_us) if acts else Mouth(node)

    played = stage.play(stage.drawn(), script, _NOTES, PERIOD_US, joins=True)
    played.run(stage.first_us + later_us)
    before = _copies(played)
    played.run(later_us)
    echoed = sum(actor.echoed for actor in played.actors(Echo)) if acts else 0
    return {"effects": (_copies(played) - before) / max(1, echoed), "echoed": float(echoed)} | played.delivered()


def _copies(played: Played) -> int:
    """Of notes, that honest nodes have sent."""
    nodes = (node_at(played.world, name) for name in played.honest())
    return sum(node.sent["Notify"] for node in nodes if node is not None)


_NOTES: Final = 20
_PROBE: Final = 7
"""Seconds for one question, its answer, and a rest."""
_TURN: Final = 15
"""Heartbeats of one turn of silence: longer than a neighbour is waited for."""
_TURNS: Final = 12
ACTS: Final[Mapping[str, Act]] = {
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

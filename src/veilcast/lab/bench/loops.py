"""How many runs and shell games a second, in loops of one process: ours, and those of the peers.

A run is P0's overlay with covers. The kernels alone do what the peers do; the engine of a sweep measures all that the
lab measures. What the peers give is held against what the kernels give, in distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from veilcast.errors import LocalError
from veilcast.lab.attack.leaf import leaves
from veilcast.lab.bench.clock import race
from veilcast.lab.bench.peers import Outcome, Peer, Setting
from veilcast.lab.kernels.cover import covered
from veilcast.lab.kernels.graph import small_world
from veilcast.lab.kernels.mesh import build, cast
from veilcast.lab.kernels.shellgame import play_swaps
from veilcast.lab.sweep.engines import ENGINES
from veilcast.lab.sweep.params import Params


def runs(peers: Sequence[Peer], count: int, rounds: int) -> dict[str, float]:
    """Runs a second in one process, of ours and of each peer."""
    ours = [_engine(seed) for seed in range(_COMPARED)]
    if not np.allclose(ours, [_kernels(seed) for seed in range(_COMPARED)]):
        raise LocalError("the engine measures something else than the kernels give")
    ways = {KERNELS: _kernels, ENGINE: _engine}
    for peer in peers:
        check(peer, ours, [peer.run(SETTING, seed) for seed in range(_COMPARED)])
        ways[peer.name] = partial(peer.run, SETTING)
    seconds = race({name: partial(_loop, way, count) for name, way in ways.items()}, rounds)
    return {name: count / found for name, found in seconds.items()}


def games(peers: Sequence[Peer], swaps: int, rounds: int) -> dict[str, float]:
    """Bare swaps a second on one mesh, of ours and of each peer."""
    graph = small_world(SETTING.nodes, SETTING.degree, SETTING.rewire, 1)
    mesh = build(graph, *cast(graph, SETTING.ratio, 1), 1)
    play_swaps(mesh, 1, 1)
    works: dict[str, Callable[[], object]] = {KERNELS: partial(play_swaps, mesh, _FASTER * swaps, 1)}
    for peer in peers:
        play = peer.game(SETTING, 1)
        occupant = play(swaps)
        if sorted(occupant.values()) != sorted(occupant):
            raise LocalError(f"{peer.name} has lost somebody in a shell game")
        works[peer.name] = partial(play, swaps)
    seconds = race(works, rounds)
    return {name: (_FASTER * swaps if name == KERNELS else swaps) / found for name, found in seconds.items()}


def check(peer: Peer, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> None:
    """Their means may differ by four standard errors; what does not vary, not at all."""
    one, other = np.array(ours), np.array(theirs)
    error = (one.var(axis=0) / len(one) + other.var(axis=0) / len(other)) ** 0.5
    if (np.abs(one.mean(axis=0) - other.mean(axis=0)) > 4 * error + _ROUNDING).any():
        raise LocalError(f"{peer.name} gives {other.mean(axis=0)}, the kernels {one.mean(axis=0)}")


def _kernels(seed: int) -> Outcome:
    graph = small_world(SETTING.nodes, SETTING.degree, SETTING.rewire, seed)
    publisher, subscribers = cast(graph, SETTING.ratio, seed)
    mesh = covered(graph, build(graph, publisher, subscribers, seed), SETTING.mu, seed)
    wrong = leaves(*mesh.links(), graph.nodes)
    wrong[subscribers] ^= True
    return Outcome(len(mesh.members), 1 - np.count_nonzero(wrong) / graph.nodes)


def _engine(seed: int) -> Outcome:
    found = {(measure.attack, measure.metric): measure.value for measure in ENGINES["kernel"](PARAMS, seed, None)}
    return Outcome(int(found["", "overlay"]), found["leaf", "accuracy_all"])


def _loop(way: Callable[[int], Outcome], count: int) -> None:
    for seed in range(count):
        way(seed)


SETTING: Final = Setting()
PARAMS: Final = Params(
    nodes=SETTING.nodes,
    degree=SETTING.degree,
    rewire=SETTING.rewire,
    ratio=SETTING.ratio,
    cover="one",
    mu=SETTING.mu,
)
KERNELS: Final = "veilcast, kernels"
ENGINE: Final = "veilcast, all measures"
_FASTER: Final = 100
"""So many times the swaps of a peer take about as long with us."""
_COMPARED: Final = 60
"""Runs of each peer, whose means are held against ours."""
_ROUNDING: Final = 1e-9

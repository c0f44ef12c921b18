"""Runs and shell games per second, in loops of one process: ours, and those of the peers.

A run is P0's overlay with covers. The models alone do what the peers do; the engine of a sweep computes all measures of
the lab. The results of the peers must have the distribution of the models'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from measurement.stopwatch import race_times
from mesh_model_peers.peers import MeshOutcome, PeerModel, Setting
from veilcast.errors import LocalError
from veilcast.lab.attack.observer.leaf_rule import find_leaves
from veilcast.lab.experiment.mesh_params import MeshFlows
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import build_mesh, draw_roles
from veilcast.lab.models.shell_game import play_swaps
from veilcast.lab.runs.table import ENGINES


def measure_runs(peers: Sequence[PeerModel], count: int, rounds: int) -> dict[str, float]:
    """Runs per second in one process, ours and each peer's."""
    ours = [_engine(seed) for seed in range(_COMPARED)]
    if not np.allclose(ours, [_kernels(seed) for seed in range(_COMPARED)]):
        raise LocalError("the engine measures something else than the kernels give")
    ways = {KERNELS: _kernels, ENGINE: _engine}
    for peer in peers:
        check_peer(peer, ours, [peer.run(SETTING, seed) for seed in range(_COMPARED)])
        ways[peer.name] = partial(peer.run, SETTING)
    seconds = race_times({name: partial(_loop, way, count) for name, way in ways.items()}, rounds)
    return {name: count / found for name, found in seconds.items()}


def measure_games(peers: Sequence[PeerModel], swaps: int, rounds: int) -> dict[str, float]:
    """Bare swaps per second on one mesh, ours and each peer's."""
    graph = small_world(SETTING.nodes, SETTING.degree, SETTING.rewire, 1)
    mesh = build_mesh(graph, *draw_roles(graph, SETTING.ratio, 1), 1)
    play_swaps(mesh, 1, 1)
    works: dict[str, Callable[[], object]] = {KERNELS: partial(play_swaps, mesh, _FASTER * swaps, 1)}
    for peer in peers:
        play = peer.game(SETTING, 1)
        occupant = play(swaps)
        if sorted(occupant.values()) != sorted(occupant):
            raise LocalError(f"{peer.name} has lost somebody in a shell game")
        works[peer.name] = partial(play, swaps)
    seconds = race_times(works, rounds)
    return {name: (_FASTER * swaps if name == KERNELS else swaps) / found for name, found in seconds.items()}


def check_peer(peer: PeerModel, ours: Sequence[MeshOutcome], theirs: Sequence[MeshOutcome]) -> None:
    """Means can differ by four standard errors; constants must be equal."""
    one, other = np.array(ours), np.array(theirs)
    error = (one.var(axis=0) / len(one) + other.var(axis=0) / len(other)) ** 0.5
    if (np.abs(one.mean(axis=0) - other.mean(axis=0)) > 4 * error + _ROUNDING).any():
        raise LocalError(f"{peer.name} gives {other.mean(axis=0)}, the kernels {one.mean(axis=0)}")


def _kernels(seed: int) -> MeshOutcome:
    graph = small_world(SETTING.nodes, SETTING.degree, SETTING.rewire, seed)
    publisher, subscribers = draw_roles(graph, SETTING.ratio, seed)
    mesh = add_covers(graph, build_mesh(graph, publisher, subscribers, seed), SETTING.mu, seed)
    wrong = find_leaves(*mesh.links(), graph.nodes)
    wrong[subscribers] ^= True
    return MeshOutcome(len(mesh.members), 1 - np.count_nonzero(wrong) / graph.nodes)


def _engine(seed: int) -> MeshOutcome:
    found = {(measure.attack, measure.metric): measure.value for measure in ENGINES["kernel"](PARAMS, seed, None)}
    return MeshOutcome(int(found["", "overlay"]), found["leaf", "accuracy_all"])


def _loop(way: Callable[[int], MeshOutcome], count: int) -> None:
    for seed in range(count):
        way(seed)


SETTING: Final = Setting()
PARAMS: Final = MeshFlows(
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
"""Our implementation plays this many times the swaps of a peer in about the same time."""
_COMPARED: Final = 60
"""Runs of each peer that are compared with ours."""
_ROUNDING: Final = 1e-9

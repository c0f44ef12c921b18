"""The kernels against the real machines of `mesh`, on the same overlays and with the same roles.

The baseline is the same edge for edge. Covers and the shell game are drawn by chance, so they are compared in
distribution: for every overlay, what the machines gave is placed among many runs of the kernel (by how many standard
deviations it is off), and the sum over the overlays must be one of those that come up in 999 of 1,000 cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from support.machines_on_graph import MachinesOnGraph
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles
from veilcast.lab.models.shell_game import play_swaps
from veilcast.mesh.config import CoverConfig, MeshConfig, ShellGameConfig

FEW, MANY = range(5), range(30)
SURE = 3.29
"""Of a normal variable, 99.9 % are nearer to its mean than so many standard deviations."""
PLAIN = MeshConfig(neighbours_max=24, address_bytes_max=8)
COVERS = MeshConfig(neighbours_max=24, address_bytes_max=8, cover=CoverConfig("one", 0.6, 10_000_000))
GAMES = MeshConfig(
    neighbours_max=24,
    address_bytes_max=8,
    shellgame=ShellGameConfig(start="child", first="exponential", wait_us=20_000_000, rate=0.03, settle_periods=18),
)
"""Waits of twenty heartbeats, for a game takes about five; nobody plays before the mesh has been seen as it is laid."""


@pytest.mark.parametrize(("n", "k", "ratio"), [(60, 4, 0.2), (60, 8, 0.3), (150, 4, 0.1)])
def test_the_baseline_mesh_is_that_of_the_machines_edge_for_edge(n: int, k: int, ratio: float) -> None:
    graph = small_world(n, k, 0.2, 1)
    publisher, subscribers = draw_roles(graph, ratio, 1)
    town = MachinesOnGraph(graph, publisher, subscribers, PLAIN, 1, in_turn=True)
    town.run(24)
    laid = town.mesh().parent.tolist()
    assert laid == build_mesh(graph, publisher, subscribers, 1, "first").parent.tolist()
    # The tie rule decides: by chance another mesh would have come.
    assert laid != build_mesh(graph, publisher, subscribers, 1, "uniform").parent.tolist()


def covers_of(seed: int) -> tuple[float, Callable[[float], list[float]]]:
    """How many nodes the machines' overlay has, and a kernel that draws such numbers for any mu."""
    graph = small_world(70, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.1, seed)
    town = MachinesOnGraph(graph, publisher, subscribers, COVERS, seed)
    town.run(45)

    def kernel(mu: float) -> list[float]:
        meshes = (build_mesh(graph, publisher, subscribers, run) for run in range(300))
        return [len(add_covers(graph, mesh, mu, run).members) for run, mesh in enumerate(meshes)]

    return len(town.mesh().members), kernel


def game_of(seed: int) -> tuple[float, Callable[[float], list[float]]]:
    """The share of subscribers among leaves after the machines' games, and a kernel's after a share of as many."""
    graph = small_world(40, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.3, seed)
    town = MachinesOnGraph(graph, publisher, subscribers, GAMES, seed)
    town.run(17)
    laid = town.mesh()
    assert town.swaps() == 0
    town.run(170)
    after, swaps = town.mesh(), town.swaps()
    assert after.members.tolist() == laid.members.tolist()
    reads = np.zeros(graph.nodes, np.bool_)
    reads[subscribers] = True

    def kernel(share: float) -> list[float]:
        games = (play_swaps(laid, round(share * swaps), run) for run in range(300))
        return [float(reads[game.occupant[leaves(laid)]].mean()) for game in games]

    return float(reads[leaves(after)].mean()), kernel


def leaves(mesh: MeshTree) -> np.ndarray:
    return np.flatnonzero((np.diff(mesh.children[0]) == 0) & (mesh.parent >= 0))


def surprise(seen: Sequence[float], drawn: Sequence[list[float]]) -> float:
    """How far the machines are off over all overlays, in standard deviations of the sum."""
    off = [(one - np.mean(runs)) / np.std(runs) for one, runs in zip(seen, drawn, strict=True)]
    return float(sum(off) / len(off) ** 0.5)


def held_against(
    run: Callable[[int], tuple[float, Callable[[float], list[float]]]], seeds: range, right: float, wrong: float
) -> tuple[float, float]:
    """The surprise under the right parameter of the kernel, and under a wrong one."""
    results = [run(seed) for seed in seeds]
    seen = [one for one, _ in results]
    return surprise(seen, [kernel(right) for _, kernel in results]), surprise(seen, [k(wrong) for _, k in results])


def test_covers_are_those_of_the_machines_in_distribution() -> None:
    right, wrong = held_against(covers_of, FEW, 0.6, 0.2)
    assert abs(right) < SURE < abs(wrong)


def test_games_are_those_of_the_machines_in_distribution() -> None:
    """At equal numbers of swaps; with hardly any, the test would see it."""
    right, wrong = held_against(game_of, FEW, 1.0, 0.1)
    assert abs(right) < SURE < abs(wrong)


@pytest.mark.heavy
@pytest.mark.parametrize(("run", "parameter", "wrong"), [(covers_of, 0.6, 0.45), (game_of, 1.0, 0.5)])
def test_thirty_overlays_tell_smaller_differences(
    run: Callable[[int], tuple[float, Callable[[float], list[float]]]], parameter: float, wrong: float
) -> None:
    right, other = held_against(run, MANY, parameter, wrong)
    assert abs(right) < SURE < abs(other)

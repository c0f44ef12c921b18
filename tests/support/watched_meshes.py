"""Meshes of the papers as a global observer sees them, and the null control."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from veilcast.lab.attack.observer import leaf_rule
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import Graph, small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles
from veilcast.lab.models.shell_game import play_swaps

NODES = 500
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class WatchedMesh:
    """One publication on the overlay of P0 (degree 4, a tenth subscribes), after many shell games."""

    graph: Graph
    publisher: int
    subscribes: Mask
    mesh: MeshTree
    src: NDArray[np.int32]
    dst: NDArray[np.int32]

    @property
    def members(self) -> Mask:
        """V_a, from the flow."""
        return leaf_rule.find_members(self.src, self.dst, self.graph.nodes)

    @property
    def asked(self) -> Mask:
        """The members whose role is the question."""
        return self.members & ~mask([self.publisher], self.graph.nodes)

    def auc(self, scores: NDArray[np.float64]) -> float:
        """AUC over V_a."""
        return auc(scores[self.asked], self.subscribes[self.asked])


def watch_mesh(seed: int, mu: float = 0.0) -> WatchedMesh:
    graph = small_world(NODES, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.1, seed)
    mesh = add_covers(graph, build_mesh(graph, publisher, subscribers, seed), mu, seed)
    occupant = play_swaps(mesh, 8 * len(mesh.members), seed).occupant
    src, dst = mesh.links()
    return WatchedMesh(graph, publisher, mask(subscribers), mesh, occupant[src], occupant[dst])


@dataclass(frozen=True, eq=False)
class GrowingMesh:
    """A mesh at several moments, between which subscribers join or leave in the order of `order`."""

    graph: Graph
    publisher: int
    order: NDArray[np.int32]
    looks: Mask


def grow_mesh(seed: int, readers: Iterable[int]) -> GrowingMesh:
    """The mesh for each of these numbers of subscribers, joining in one order; members keep their paths."""
    graph = small_world(NODES, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.1, seed)
    order = np.random.default_rng(seed).permutation(subscribers)
    looks = [mask(build_mesh(graph, publisher, order[:many], seed).members) for many in readers]
    return GrowingMesh(graph, publisher, order, np.array(looks))


def mask(nodes: ArrayLike, count: int = NODES) -> Mask:
    """A mask over `count` nodes."""
    found = np.zeros(count, dtype=np.bool_)
    found[np.asarray(nodes, dtype=np.int64)] = True
    return found


def expect_nothing(scores: NDArray[np.float64], positive: Mask) -> None:
    """The null control: over shuffled labels the AUC is 0.5, within the interval of its mean.

    Each is a mean over ranks drawn without replacement, so the spread is known, whatever is tied.
    """
    rng, times = np.random.default_rng(1), 200
    values = [auc(scores, rng.permutation(positive)) for _ in range(times)]
    pairs = np.count_nonzero(positive) * np.count_nonzero(~positive)
    spread = np.sqrt(np.var(rankdata(scores), ddof=1) / (len(scores) * pairs))
    assert np.mean(values) == pytest.approx(0.5, abs=3 * spread / times**0.5)

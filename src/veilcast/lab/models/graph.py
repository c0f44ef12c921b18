"""Basic overlays: the neighbours of nodes in compressed rows, and the random models that overlays are drawn from.

`small_world` is Watts and Strogatz (1998) as in P0: a ring in which each node knows its k nearest, and each edge is
rewired with probability p. An edge is owned by the end that it started from, also after the other end changes. So two
nodes are neighbours if one is among the k/2 that the other owns, and no table of edges is needed. `regular` pairs free
ends at random and refuses loops and double edges (Steger and Wormald 1999). `scale_free` is Barabasi and Albert (1999):
a later node chooses ends of existing edges, and so nodes by their degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_unit, stream


@dataclass(frozen=True, eq=False)
class Graph:
    """Undirected, without loops or double edges. Every row is sorted, and every edge is in two rows."""

    offsets: NDArray[np.int64]
    """Where each node's row begins, and where the last one ends."""
    targets: NDArray[np.int32]

    @property
    def nodes(self) -> int:
        return len(self.offsets) - 1

    def degree(self, node: int) -> int:
        return int(self.offsets[node + 1] - self.offsets[node])

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def neighbours(self, node: int) -> NDArray[np.int32]:
        return self.targets[self.offsets[node] : self.offsets[node + 1]]

    def edges(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Each edge once, as (u, v) with u < v, in order."""
        sources = np.repeat(np.arange(self.nodes, dtype=np.int32), self.degrees)
        once = sources < self.targets
        return sources[once], self.targets[once]


def small_world(n: int, k: int, p: float, seed: int) -> Graph:
    _check_degree(n, k)
    if not 0 <= p <= 1:
        raise ConfigError(f"rewire must be a probability, not {p}")
    owned = _rewire(n, k // 2, p, stream(seed, "small-world"))
    return Graph(*_rows(n, np.repeat(np.arange(n, dtype=np.int32), k // 2), owned.reshape(-1)))


def regular(n: int, k: int, seed: int) -> Graph:
    if not 1 <= k < n or n * k % 2:
        raise ConfigError(f"{n} nodes cannot have {k} neighbours each")
    state = stream(seed, "regular")
    known = _pair_ends(n, k, state)
    while len(known) == 0:
        known = _pair_ends(n, k, state)
    sources = np.repeat(np.arange(n, dtype=np.int32), k)
    once = sources < known.reshape(-1)
    return Graph(*_rows(n, sources[once], known.reshape(-1)[once]))


def scale_free(n: int, k: int, seed: int) -> Graph:
    """The mean degree is k, except for the first k/2 + 1 nodes, which all know one another."""
    _check_degree(n, k)
    return Graph(*_rows(n, *_attach_nodes(n, k // 2, stream(seed, "scale-free"))))


def from_edges(n: int, u: ArrayLike, v: ArrayLike) -> Graph:
    """The graph of these edges, given in any order and direction. Repeated edges count once; loops are ignored."""
    sources, targets = np.asarray(u, dtype=np.int32), np.asarray(v, dtype=np.int32)
    if sources.shape != targets.shape or sources.ndim != 1:
        raise ConfigError("edges are two columns of the same length")
    if len(sources) and (min(sources.min(), targets.min()) < 0 or max(sources.max(), targets.max()) >= n):
        raise ConfigError(f"an edge leads to a node that is none of the {n}")
    apart = sources != targets
    low, high = np.minimum(sources, targets)[apart], np.maximum(sources, targets)[apart]
    keys = np.unique(low.astype(np.int64) * n + high)
    return Graph(*_rows(n, (keys // n).astype(np.int32), (keys % n).astype(np.int32)))


def restrict_graph(graph: Graph, present: NDArray[np.bool_]) -> Graph:
    """The same graph, in which absent nodes have no links."""
    return Graph(*_restrict_graph(graph.offsets, graph.targets, present))


def _check_degree(n: int, k: int) -> None:
    if k < 2 or k % 2 or k >= n:
        raise ConfigError(f"degree must be even, at least 2 and less than the {n} nodes, not {k}")


@jit
def _rows(
    n: int, sources: NDArray[np.int32], targets: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Edges to rows. They are written twice, the second time in the order of the first, which sorts every row."""
    edges = len(sources)
    offsets = np.zeros(n + 1, np.int64)
    for edge in range(edges):
        offsets[sources[edge] + 1] += 1
        offsets[targets[edge] + 1] += 1
    for node in range(n):
        offsets[node + 1] += offsets[node]
    fill = offsets[:-1].copy()
    first = np.empty(2 * edges, np.int32)
    for edge in range(edges):
        u, v = sources[edge], targets[edge]
        first[fill[u]] = v
        first[fill[v]] = u
        fill[u] += 1
        fill[v] += 1
    fill[:] = offsets[:-1]
    second = np.empty(2 * edges, np.int32)
    for u in range(n):
        for at in range(offsets[u], offsets[u + 1]):
            v = first[at]
            second[fill[v]] = u
            fill[v] += 1
    return offsets, second


@jit
def _restrict_graph(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], present: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    nodes, kept = offsets.size - 1, 0
    fewer, left = np.zeros(offsets.size, np.int64), np.empty(targets.size, np.int32)
    for node in range(nodes):
        for slot in range(offsets[node], offsets[node + 1]):
            if present[node] and present[targets[slot]]:
                left[kept] = targets[slot]
                kept += 1
        fewer[node + 1] = kept
    return fewer, left[:kept].copy()


@jit
def _rewire(n: int, half: int, p: float, state: Stream) -> NDArray[np.int32]:
    """The other ends of the edges that each node owns."""
    owned = np.empty((n, half), np.int32)
    degrees = np.full(n, 2 * half, np.int32)
    for u in range(n):
        for step in range(half):
            owned[u, step] = (u + step + 1) % n
    for step in range(half):
        for u in range(n):
            # An edge stays as it is if its node knows all others already.
            if draw_unit(state) >= p or degrees[u] == n - 1:
                continue
            w = draw_below(state, n)
            while w == u or _among(owned, u, w) or _among(owned, w, u):
                w = draw_below(state, n)
            degrees[owned[u, step]] -= 1
            degrees[w] += 1
            owned[u, step] = w
    return owned


@jit
def _pair_ends(n: int, k: int, state: Stream) -> NDArray[np.int32]:
    """The neighbours of each node; or nothing, if the remaining ends cannot be joined."""
    known = np.full((n, k), -1, np.int32)
    degrees = np.zeros(n, np.int32)
    ends = np.empty(n * k, np.int32)
    for end in range(n * k):
        ends[end] = end // k
    left, refused = n * k, 0
    while left > 0:
        i, j = draw_below(state, left), draw_below(state, left)
        u, v = ends[i], ends[j]
        if u == v or _among(known, u, v):
            refused += 1
            if refused > 64 + left and not _joinable(known, ends[:left]):
                return known[:0]
            continue
        refused = 0
        known[u, degrees[u]], known[v, degrees[v]] = v, u
        degrees[u] += 1
        degrees[v] += 1
        ends[max(i, j)] = ends[left - 1]
        ends[min(i, j)] = ends[left - 2]
        left -= 2
    return known


@jit
def _joinable(known: NDArray[np.int32], ends: NDArray[np.int32]) -> bool:
    for u in ends:
        for v in ends:
            if u != v and not _among(known, u, v):
                return True
    return False


@jit
def _attach_nodes(n: int, half: int, state: Stream) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Edges from each node to those that it chose."""
    first = half + 1
    edges = half * first // 2 + (n - first) * half
    sources, targets = np.empty(edges, np.int32), np.empty(edges, np.int32)
    edge = 0
    for u in range(first):
        for v in range(u):
            sources[edge], targets[edge] = u, v
            edge += 1
    for u in range(first, n):
        before = edge
        while edge < before + half:
            # A random end of an existing edge: its node is drawn by degree.
            end = draw_below(state, 2 * before)
            v = sources[end // 2] if end % 2 else targets[end // 2]
            known = False
            for at in range(before, edge):
                known |= targets[at] == v
            if not known:
                sources[edge], targets[edge] = u, v
                edge += 1
    return sources, targets


@jit
def _among(known: NDArray[np.int32], u: int, v: int) -> bool:
    """Whether v is in the row of u."""
    for other in known[u]:  # noqa: SIM110 - a generator is more than numba knows
        if other == v:
            return True
    return False

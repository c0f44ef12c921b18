"""Attacks on heartbeats alone: who exchanges them outside the basic overlay, and what that tells of swaps (P0 4.5).

P0 hides swaps inside heartbeats, so that an observer sees neither content nor moment. But members that have swapped
become neighbours in the mesh, and must exchange heartbeats from then on. A pair that the overlay does not have shows:

1. *members*: only nodes of a mesh have such partners. No publication is needed;
2. *swaps*: the pairs of a swap appear within a few heartbeats of one another, and those that it replaces end a lease
   later. So an observer that has seen one notification traces the mesh back.

Tracing back. The first copies that nodes receive are a tree. In a tree that the overlay alone has laid, all links are
in the overlay. While the tree has a link outside of it, take the link whose pair appeared last. The swap that made it
was between one of its ends and a node next to it in the tree: three kinds of candidates. To undo a candidate replaces
some links. It explains the pairs that appeared at that time and are not needed before, and it contradicts pairs that
would have been needed and did not exist. A laid tree consists of shortest ways, so it also counts how many links become
such ones. The candidate with the largest balance is undone. Where none explains more than it contradicts, the link is
left. Swaps whose pairs are all in the overlay leave no mark, and are not undone.

Pairs that the observer saw from the beginning of its record on say nothing about when they appeared, and count as pairs
of the overlay. If all nodes near one another exchange heartbeats at all times, all pairs are of that kind, and what is
left is the leaf rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure, leaf_rule
from veilcast.lab.models.graph import Graph

Nodes = NDArray[np.int32]
Times = NDArray[np.int64]
Scores = NDArray[np.float64]
Pair: TypeAlias = tuple[int, int]


class PairSpans(NamedTuple):
    """Uninterrupted times in which one node sent another heartbeats, or copies of a notification."""

    src: Nodes
    dst: Nodes
    first: Times
    last: Times


@dataclass(frozen=True, eq=False)
class HeartbeatObservations:
    """What a global observer sees of one run: the basic overlay, heartbeats, and the copies of one publication."""

    graph: Graph
    heartbeats: PairSpans
    copies: PairSpans
    """None of them, if nothing was published."""
    heartbeat_us: int
    rate: float
    """The share of subscribers."""

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @cached_property
    def overlay(self) -> frozenset[Pair]:
        return frozenset(_pair(int(u), int(v)) for u, v in zip(*self.graph.edges(), strict=True))

    @cached_property
    def outside(self) -> dict[Pair, list[tuple[int, int]]]:
        """The spans of each pair that is not in the overlay, in order; the smaller node comes first."""
        found: dict[Pair, list[tuple[int, int]]] = {}
        columns = (column.tolist() for column in self.heartbeats)
        for src, dst, first, last in sorted(zip(*columns, strict=True), key=lambda row: (row[2], row[3])):
            pair = _pair(src, dst)
            if pair not in self.overlay:
                spans = found.setdefault(pair, [])
                if spans and first <= spans[-1][1] + _SPLIT * self.heartbeat_us:
                    spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
                else:
                    spans.append((first, last))
        return found

    @property
    def known_us(self) -> int:
        """Pairs that appeared until then may have been there before the record began."""
        first = self.heartbeats.first
        return int(first.min()) + _BEGINNING * self.heartbeat_us if first.size else 0

    @cached_property
    def first_copies(self) -> tuple[Nodes, Nodes]:
        """The link over which each node got the notification first."""
        src, dst, first, _ = self.copies
        order = np.lexsort((src, first))
        got, at = np.unique(dst[order], return_index=True)
        origins = np.setdiff1d(src, dst)
        if not origins.size and src.size:
            origins = src[order][:1]
        kept = ~np.isin(got, origins)
        return src[order][at][kept], got[kept].astype(np.int32)


def score_pairs(seen: HeartbeatObservations) -> Scores:
    """The number of partners outside the overlay that came during the record, by node."""
    found = np.zeros(seen.nodes)
    for ends, spans in seen.outside.items():
        found[list(ends)] += spans[-1][0] > seen.known_us
    return found


def score_leaves(seen: HeartbeatObservations) -> Scores:
    return leaf_rule.score_leaf_rule(*seen.first_copies, seen.nodes)


def score_closure(seen: HeartbeatObservations) -> Scores:
    src, dst = seen.first_copies
    if not src.size:
        return np.zeros(seen.nodes)
    origin = int(np.setdiff1d(src, dst)[0])
    members = leaf_rule.find_members(src, dst, seen.nodes)
    return closure.score_closure(seen.graph, members, distances_from(seen.graph, origin), seen.rate)


def score_traced(seen: HeartbeatObservations) -> Scores:
    """The leaf rule on the tree before all swaps that could be traced."""
    src, dst = seen.first_copies
    tree = SwapTracer(seen, dict(zip(dst.tolist(), src.tolist(), strict=True))).trace()
    ends = np.array([*tree.values()], np.int32), np.array([*tree], np.int32)
    return leaf_rule.score_leaf_rule(*ends, seen.nodes)


class SwapTracer:
    """Undoes swaps in a tree, the last first. `above` gives the node from which each node gets the topic."""

    def __init__(self, seen: HeartbeatObservations, above: dict[int, int]) -> None:
        self._overlay, self._outside, self._beat_us = seen.overlay, seen.outside, seen.heartbeat_us
        self._above = above
        self._below: dict[int, dict[int, None]] = {}
        for node, parent in above.items():
            self._below.setdefault(parent, {})[node] = None
        roots = set(above.values()) - above.keys()
        self._hops = distances_from(seen.graph, min(roots, default=0)).tolist()
        self._explained: set[tuple[Pair, int]] = set()
        self._known_us = seen.known_us
        self._now = int(seen.copies.first.min(initial=_NEVER))

    def trace(self) -> dict[int, int]:
        """Ends, because each time that a pair appeared is explained once."""
        while links := [(born, pair) for pair in self._links() if (born := self._birth(pair))]:
            born, pair = max(links)
            self._now = min(self._now, born)
            candidates = [(self._balance(high, low, born), high, low) for high, low in self._candidates(pair)]
            balance, high, low = max(candidates, default=(0.0, 0, 0))
            self._explained.add((pair, born))
            if balance > _BALANCE_MIN:
                self._explained |= {
                    (made, birth)
                    for made in self._made(high, low)
                    if abs((birth := self._birth(made)) - born) <= _TOGETHER * self._beat_us
                }
                self._undo(high, low)
        return self._above

    def _links(self) -> Iterator[Pair]:
        return (_pair(node, parent) for node, parent in self._above.items())

    def _birth(self, pair: Pair) -> int:
        """When this pair appeared, as seen from now back; 0 for a pair that says nothing."""
        spans = self._outside.get(pair, ())
        births = [
            first for first, _ in spans if self._known_us < first <= self._now and (pair, first) not in self._explained
        ]
        return births[-1] if births else 0

    def _existed(self, pair: Pair, when: int) -> bool:
        """True if the pair may have been linked just before this time."""
        if pair not in self._outside:
            return False
        early = when - _TOGETHER * self._beat_us
        return any(first <= when and last >= early for first, last in self._outside[pair])

    def _candidates(self, pair: Pair) -> Iterator[Pair]:
        """The swaps that could have made this link: the node that moved up, and the node that moved down."""
        child, parent = pair if self._above.get(pair[0]) == pair[1] else pair[::-1]
        for low in self._below.get(child, ()):
            yield child, low
        for low in self._below.get(parent, ()):
            if low != child and parent in self._above:
                yield parent, low
        if parent in self._above and self._above[parent] in self._above:
            yield self._above[parent], parent

    def _balance(self, high: int, low: int, born: int) -> float:
        """How much better the pairs at that time fit if `high` and `low` have just swapped."""
        if high not in self._above:
            return -1.0
        top, beside, under = self._above[high], [*self._below.get(high, ())], [*self._below.get(low, ())]
        beside.remove(low)
        needed = [(low, top), *((low, node) for node in beside), *((high, node) for node in under)]
        total = 0.0
        for pair in self._made(high, low):
            if (birth := self._birth(pair)) != 0:
                total += 1.0 if abs(birth - born) <= _TOGETHER * self._beat_us else -1.0
        for pair in (_pair(*each) for each in needed):
            if self._is_informative(pair):
                total += 0.5 if self._existed(pair, born) else -1.0
        ways = sum(map(self._is_shortest_way, [(top, low), (low, high)]))
        ways += sum(self._is_shortest_way((low, node)) for node in beside)
        ways += sum(self._is_shortest_way((high, node)) for node in under)
        ways -= sum(map(self._is_shortest_way, [(top, high), (high, low)]))
        ways -= sum(self._is_shortest_way((high, node)) for node in beside)
        ways -= sum(self._is_shortest_way((low, node)) for node in under)
        return total + _OF_WAYS * ways

    def _made(self, high: int, low: int) -> list[Pair]:
        """The pairs that a swap of these two has made."""
        beside = (_pair(high, node) for node in self._below.get(high, ()) if node != low)
        under = (_pair(low, node) for node in self._below.get(low, ()))
        return [_pair(high, self._above[high]), *beside, *under]

    def _is_shortest_way(self, link: Pair) -> bool:
        return self._hops[link[1]] == self._hops[link[0]] + 1 and _pair(*link) in self._overlay

    def _is_informative(self, pair: Pair) -> bool:
        """True unless the pair is in the overlay, or was linked from the beginning on."""
        spans = self._outside.get(pair)
        if spans is None:
            return pair not in self._overlay
        return spans[0][0] > self._known_us

    def _undo(self, high: int, low: int) -> None:
        top = self._above[high]
        beside, under = self._below.pop(high), self._below.pop(low, {})
        del beside[low]
        del self._below[top][high]
        self._below[top][low] = None
        self._above[low], self._above[high] = top, low
        self._below[low] = {**beside, high: None}
        for node in beside:
            self._above[node] = low
        if under:
            self._below[high] = under
            for node in under:
                self._above[node] = high


def _pair(u: int, v: int) -> Pair:
    return (u, v) if u < v else (v, u)


_NEVER: Final = 2**62
_SPLIT: Final = 3
"""Heartbeats without one after which a pair has ended."""
_TOGETHER: Final = 5
"""Heartbeats within which the pairs of one swap appear."""
_BEGINNING: Final = 6
"""Heartbeats from the first one on in which pairs are seen that were there before."""
_OF_WAYS: Final = 0.25
"""Weight of a link that becomes a shortest way, where a pair that appeared counts 1."""
_BALANCE_MIN: Final = 0.0
"""A swap is undone if it explains more than this."""

"""A record: what an outside observer has of one run, as arrays. Nodes are numbers.

Notes lie in waves (`publication_waves`), one for each publication, and a wave shows a mesh: who is in it, and who sent
first. Waves
of one epoch that came of one source show the same mesh, and are taken together: a copy that was missed in one is in
another. Of each epoch the mesh that was shown most often stays. Others are noise, or other topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import hop_distances
from veilcast.lab.attack.observer import flow_correlation, publication_waves
from veilcast.lab.attack.observer.cadence import GapCounts
from veilcast.lab.models.graph import Graph

Nodes = NDArray[np.int32]
Masks = NDArray[np.bool_]


class ObservedMesh(NamedTuple):
    source: int
    members: Masks
    """By node, whether it had notes, the source too."""
    distance: Nodes
    """By node, hops from the source over the whole overlay."""
    asked: Masks
    """By node, whether the mesh tells anything of it: it was there, and is not the source."""


class ActivityRounds(NamedTuple):
    length_us: int
    first: int
    """Since the beginning of time."""
    activity: NDArray[np.float64]
    """Rounds x nodes: how much each got."""


class ByteVolumes(NamedTuple):
    """Bytes in short bins of time, as many to a heartbeat as `flow_correlation` has it: nodes x bins."""

    leaving: NDArray[np.float64]
    arriving: NDArray[np.float64]

    @classmethod
    def from_rows(
        cls,
        number: NDArray[np.int64],
        node: Nodes,
        arriving: NDArray[np.int64],
        size: NDArray[np.int64] | NDArray[np.float64],
        nodes: int,
    ) -> Self | None:
        """From bytes in any order: in which bin, of whom, and 1 where they arrived. None if there are none, or more
        nodes than can be compared; of a record that is too long, its beginning."""
        if not len(number) or nodes > NODES_MAX:
            return None
        first = int(number.min())
        bins = min(int(number.max()) - first + 1, BINS_MAX // nodes)
        kept = number < first + bins
        place = (arriving[kept] * nodes + node[kept]) * bins + number[kept] - first
        return cls(*np.bincount(place, size[kept], 2 * nodes * bins).astype(np.float64).reshape(2, nodes, bins))


@dataclass(frozen=True, eq=False)
class CaptureObservations:
    graph: Graph
    """The overlay of all epochs together."""
    present: Masks
    """Epochs x nodes: who was there."""
    src: Nodes
    dst: Nodes
    at: NDArray[np.int64]
    """When each copy of a note was seen, in the order of time."""
    epoch: NDArray[np.int64]
    """The row of `present` of each copy."""
    rounds: ActivityRounds
    published: NDArray[np.int64]
    """When something was published, if the observer reads along; else it is the waves that tell."""
    topic: NDArray[np.int64]
    """Of each of these."""
    cadence: GapCounts
    """Of all cells."""
    volumes: ByteVolumes | None = None
    """If anybody has counted."""

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @cached_property
    def publication(self) -> NDArray[np.int64]:
        """Of which publication each copy is, from 0 on."""
        return publication_waves.assign_publications(self.at, self.src, self.dst)

    @cached_property
    def flows(self) -> list[tuple[Nodes, Nodes]]:
        """The copies of each publication: from whom, and to whom."""
        if not len(self.at):
            return []
        order = np.argsort(self.publication, kind="stable")
        cuts = np.flatnonzero(np.diff(self.publication[order])) + 1
        return list(zip(*(np.split(ends[order], cuts) for ends in (self.src, self.dst)), strict=True))

    @cached_property
    def busy(self) -> Masks:
        """Rounds x topics: when something was published."""
        at, topic = self.published, self.topic
        if not len(at):
            at = self.at[np.unique(self.publication, return_index=True)[1]]
            topic = np.zeros(len(at), np.int64)
        found = np.zeros((len(self.rounds.activity), int(topic.max(initial=0)) + 1), np.bool_)
        row = at // self.rounds.length_us - self.rounds.first
        known = (row >= 0) & (row < len(found))
        found[row[known], topic[known]] = True
        return found

    @cached_property
    def received(self) -> Masks:
        """Publications x nodes: who got a copy."""
        found = np.zeros((len(self.flows), self.nodes), np.bool_)
        found[self.publication, self.dst] = True
        return found

    @cached_property
    def correlated(self) -> flow_correlation.FlowScores:
        """Who follows, and who leads."""
        if self.volumes is None:
            return flow_correlation.FlowScores(np.zeros(self.nodes), np.zeros(self.nodes))
        leaving, arriving = (
            flow_correlation.remove_rhythm(values, flow_correlation.BINS_PER_HEARTBEAT) for values in self.volumes
        )
        return flow_correlation.score_flows(leaving, arriving, flow_correlation.LAGS_MAX)

    @cached_property
    def meshes(self) -> list[ObservedMesh]:
        """In the order of epochs."""
        _, first = np.unique(self.publication, return_index=True)
        shown = self.epoch[first] * self.nodes + self.src[first]
        kinds, kind, count = np.unique(shown, return_inverse=True, return_counts=True)
        members, row = np.zeros((len(kinds), self.nodes), np.bool_), kind[self.publication]
        members[row, self.src] = members[row, self.dst] = True
        epoch, source = np.divmod(kinds, self.nodes)
        order = np.lexsort((-count, epoch))
        kept = order[np.unique(epoch[order], return_index=True)[1]]
        roots, root = np.unique(source[kept].astype(np.int32), return_inverse=True)
        distance = hop_distances(self.graph, roots)[root]
        return [
            ObservedMesh(int(source[each]), members[each], far, self.present[epoch[each]] & (far != 0))
            for each, far in zip(kept, distance, strict=True)
        ]


NODES_MAX: Final = 4_096
"""Whose volumes are compared, all with all: some numbers of 8 bytes for each pair."""
BINS_MAX: Final = 1 << 25
"""Over all nodes, each way: a quarter of a gigabyte, a few times."""

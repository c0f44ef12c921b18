"""Observations of a global observer, as arrays: meshes, copies of publications, activity, gaps and volumes.

Nodes are numbers. Two kinds of runs give such observations:

- `CaptureObservations`: cells of a capture. Notifications form waves (`publication_waves`), one for each publication.
  A wave shows a mesh: its members, and the node that sent first. Waves of one epoch with the same source show the same
  mesh and are joined: a copy that was missed in one is in another. The mesh that was shown most often in an epoch
  stays; others are noise, or other topics.
- `EpochObservations`: a run over epochs, of which the observer sees one publication in every epoch. P0 grants its
  observer the overlay and the number of subscribers.

Both give an attacker the same: meshes, publications, rounds, and histories of meshes that grew or shrank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.classifiers import ClassifierPair
from veilcast.lab.attack.hops import distances_from, hop_distances
from veilcast.lab.attack.observer import cadence, closure, leaf_rule, publication_waves
from veilcast.lab.attack.observer.cadence import GapCounts, LinkWindows
from veilcast.lab.attack.observer.disclosure import RoundMoments, sum_moments
from veilcast.lab.attack.observer.flow_correlation import FlowScores
from veilcast.lab.models.graph import Graph

Nodes = NDArray[np.int32]
Masks = NDArray[np.bool_]
Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ObservedMesh:
    graph: Graph
    """Overlay at that time."""
    source: int
    members: Masks
    """Nodes that had notifications, the source included."""
    distance: Nodes
    """Hops from the source over the whole overlay."""
    asked: Masks
    """Nodes that the mesh says anything about: neither absent nodes nor the source."""
    joins: Masks | None = None
    """Rows of members with all subscribers, and with three quarters, a half and a quarter of them, if that was seen."""

    @cached_property
    def supported(self) -> Masks:
        return closure.supported_members(self.graph, self.members, self.distance)

    @cached_property
    def need(self) -> Scores:
        """Probability, by node, that a supported member hangs on it."""
        return closure.need_probability(self.graph, self.supported, self.distance)


class MeshHistory(NamedTuple):
    """A mesh that an observer looked at several times."""

    graph: Graph
    distance: Nodes
    asked: Masks
    looks: Masks
    """Rows of members, in order. From one look to the next, members only join, or only leave."""


class ObservedFlow(NamedTuple):
    """The copies of one publication: source, destination and time of each."""

    src: Nodes
    dst: Nodes
    at: NDArray[np.int64]


class WireObservations(ABC):
    """The common part of all observations of wires."""

    graph: Graph
    """Overlay of all epochs together."""

    @property
    @abstractmethod
    def meshes(self) -> list[ObservedMesh]:
        """The observed meshes, in order."""

    @property
    @abstractmethod
    def covers(self) -> float:
        """Public probability that a node that no member needs is in a mesh as a cover."""

    @property
    def asked(self) -> Masks:
        """Meshes x nodes."""
        return np.array([mesh.asked for mesh in self.meshes], np.bool_).reshape(-1, self.nodes)

    @property
    def members(self) -> Masks:
        """Meshes x nodes."""
        return np.array([mesh.members for mesh in self.meshes], np.bool_).reshape(-1, self.nodes)

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @property
    @abstractmethod
    def rate(self) -> float:
        """The share of subscribers, as far as it is known."""

    @property
    @abstractmethod
    def subscribers(self) -> int:
        """The number of subscribers, as far as it is known."""

    @property
    @abstractmethod
    def busy(self) -> Masks:
        """Rounds x topics: whether something was published."""

    @property
    @abstractmethod
    def activity(self) -> Scores:
        """Rounds x nodes: what each node received."""

    @property
    @abstractmethod
    def moments(self) -> RoundMoments | None:
        """The moments of all rounds; None if there are no rounds."""

    @abstractmethod
    def each_flow(self, score: Callable[[WireObservations, ObservedFlow], Scores]) -> Sequence[Scores]:
        """Score every publication by itself."""

    @abstractmethod
    def each_mesh(
        self, score: Callable[[WireObservations, ObservedMesh], Scores], *, slow: bool = False
    ) -> Sequence[Scores]:
        """Score every mesh by itself. A `slow` attacker is shown only the meshes that the observer looks at closely."""

    @abstractmethod
    def average_histories(self, score: Callable[[WireObservations, MeshHistory], Scores], *, growing: bool) -> Scores:
        """Score every history of a mesh that grew, or of one that shrank. Returns the mean, by node, over the histories
        that say something about it."""

    @abstractmethod
    def average(self, scores: Sequence[Scores]) -> Scores:
        """The mean over all publications or meshes that say something about a node."""

    def mean(self, scores: Sequence[Scores]) -> Scores:
        """The plain mean; 0 if there is nothing to average."""
        total = np.zeros(self.nodes)
        for each in scores:
            total += each
        return total / max(1, len(scores))


class ActivityRounds(NamedTuple):
    length_us: int
    first: int
    """Number of the first round since the beginning of time."""
    activity: Scores
    """Rounds x nodes: bytes that each node received."""


@dataclass(frozen=True, eq=False)
class CaptureObservations(WireObservations):
    graph: Graph
    present: Masks
    """Epochs x nodes: presence."""
    src: Nodes
    dst: Nodes
    at: NDArray[np.int64]
    """Time of each copy of a notification, in order."""
    epoch: NDArray[np.int64]
    """Row of `present` of each copy."""
    rounds: ActivityRounds
    published: NDArray[np.int64]
    """Times of publications, if the observer is a subscriber; otherwise the waves tell them."""
    topic: NDArray[np.int64]
    """Topic of each of these publications."""
    gaps: GapCounts
    """Gaps of all cells."""
    correlated: FlowScores | None = None
    """The correlation of volumes; None if they were not counted, or cannot be compared."""
    rate: float = 0.1
    covers: float = 0.0
    begins_us: int = 0
    """Time from which rounds are counted."""
    sent: ActivityRounds | None = None
    """What each node sent in the same rounds; None if it was not counted."""
    windows: LinkWindows | None = None
    """None if windows of links were not summed up."""
    trained: Mapping[str, ClassifierPair] = field(default_factory=dict)
    """Classifiers of cadence by role, trained on other captures."""

    @property
    def subscribers(self) -> int:
        return round(self.rate * self.nodes)

    @property
    def departures(self) -> Scores:
        return np.zeros_like(self.activity) if self.sent is None else self.sent.activity

    @cached_property
    def cadence_features(self) -> Scores:
        """The features of each node for a classifier of cadence."""
        if self.windows is None:
            raise ConfigError("windows of links were not summed up")
        return cadence.extract_features(self.windows, self.nodes)

    @cached_property
    def publication(self) -> NDArray[np.int64]:
        """Publication of each copy, from 0 on."""
        return publication_waves.assign_publications(self.at, self.src, self.dst)

    @cached_property
    def flows(self) -> list[ObservedFlow]:
        if not len(self.at):
            return []
        order = np.argsort(self.publication, kind="stable")
        cuts = np.flatnonzero(np.diff(self.publication[order])) + 1
        columns = (np.split(column[order], cuts) for column in (self.src, self.dst, self.at))
        return [ObservedFlow(*each) for each in zip(*columns, strict=True)]

    @cached_property
    def busy(self) -> Masks:
        at, topic = self.published, self.topic
        if not len(at):
            at = self.at[np.unique(self.publication, return_index=True)[1]]
            topic = np.zeros(len(at), np.int64)
        found = np.zeros((len(self.rounds.activity), int(topic.max(initial=0)) + 1), np.bool_)
        row = (at - self.begins_us) // self.rounds.length_us - self.rounds.first
        known = (row >= 0) & (row < len(found))
        found[row[known], topic[known]] = True
        return found

    @property
    def activity(self) -> Scores:
        return self.rounds.activity

    @property
    def moments(self) -> RoundMoments | None:
        return sum_moments(self.busy.astype(np.float64), self.activity) if len(self.busy) else None

    @cached_property
    def meshes(self) -> list[ObservedMesh]:
        """One mesh for each epoch with publications, in order."""
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
            ObservedMesh(self.graph, int(source[each]), members[each], far, self.present[epoch[each]] & (far != 0))
            for each, far in zip(kept, distance, strict=True)
        ]

    def each_flow(self, score: Callable[[WireObservations, ObservedFlow], Scores]) -> list[Scores]:
        return [score(self, flow) for flow in self.flows]

    def each_mesh(
        self, score: Callable[[WireObservations, ObservedMesh], Scores], *, slow: bool = False
    ) -> list[Scores]:
        return [score(self, mesh) for mesh in self.meshes]

    def average_histories(self, score: Callable[[WireObservations, MeshHistory], Scores], *, growing: bool) -> Scores:
        histories = _split_histories(self.meshes, growing)
        asked = np.array([history.asked for history in histories], np.bool_).reshape(-1, self.nodes)
        return _average_asked([score(self, history) for history in histories], asked)

    def average(self, scores: Sequence[Scores]) -> Scores:
        return self.mean(scores)


@dataclass(frozen=True, eq=False)
class EpochWires:
    """The wires in one epoch."""

    present: Masks
    graph: Graph
    """Overlay of the present nodes."""
    src: Nodes
    dst: Nodes
    at: NDArray[np.int64]
    """Time of each copy."""
    members_at_joins: Masks | None = None
    """Members of the mesh when all of its subscribers have joined, three quarters, a half and a quarter of them, if
    that was seen."""


class EpochObservations(WireObservations):
    """The epochs of a run that the observer has seen so far.

    The publisher is the node that sends without having received. Absent nodes and the publisher are not asked about.
    Every epoch is independent evidence. Each epoch is scored once, however often the attackers are asked.
    """

    def __init__(self, graph: Graph, subscribers: int, covers: float) -> None:
        self.graph = graph
        self._covers, self._subscribers = covers, subscribers
        self._meshes: list[ObservedMesh] = []
        self.flows: list[ObservedFlow] = []
        self._close: list[int] = []
        self._scored: dict[object, list[Scores]] = {}
        self._busy: list[Masks] = []
        self._activity: list[Scores] = []
        self._moments: RoundMoments | None = None

    def see(self, wires: EpochWires, *, closely: bool = True) -> None:
        """Add one epoch. Slow attackers, which try every member as the root, use only epochs seen `closely`."""
        nodes = wires.graph.nodes
        members = leaf_rule.find_members(wires.src, wires.dst, nodes)
        origins = np.flatnonzero(members & ~leaf_rule.mask_of(wires.dst, nodes))
        # On constant wires no node is the origin, and any member will do.
        origin = int(origins[0] if origins.size else np.argmax(members))
        asked = wires.present.copy()
        asked[origin] = False
        if closely:
            self._close.append(len(self._meshes))
        distance = distances_from(wires.graph, origin)
        self._meshes.append(ObservedMesh(wires.graph, origin, members, distance, asked, wires.members_at_joins))
        self.flows.append(ObservedFlow(wires.src, wires.dst, wires.at))

    def count_rounds(self, busy: Masks, activity: Scores) -> None:
        """Add rounds: rounds x topics, the topic in question first; and rounds x nodes."""
        self._busy.append(busy[:, :1])
        self._activity.append(activity)
        seen = sum_moments(busy.astype(np.float64), activity)
        self._moments = seen if self._moments is None else self._moments + seen

    @property
    def meshes(self) -> list[ObservedMesh]:
        return self._meshes

    @property
    def covers(self) -> float:
        return self._covers

    @property
    def rate(self) -> float:
        return self._subscribers / self.nodes

    @property
    def subscribers(self) -> int:
        return self._subscribers

    @property
    def busy(self) -> Masks:
        """Rounds x 1: the topic in question alone; the observer does not know when other topics were busy."""
        return np.concatenate(self._busy)

    @property
    def activity(self) -> Scores:
        return np.vstack(self._activity)

    @property
    def moments(self) -> RoundMoments | None:
        return self._moments

    def each_flow(self, score: Callable[[WireObservations, ObservedFlow], Scores]) -> list[Scores]:
        known = self._scored.setdefault(score, [])
        known += [score(self, flow) for flow in self.flows[len(known) :]]
        return known

    def each_mesh(
        self, score: Callable[[WireObservations, ObservedMesh], Scores], *, slow: bool = False
    ) -> list[Scores]:
        epochs = self._close if slow else range(len(self.meshes))
        known = self._scored.setdefault(score, [])
        known += [score(self, self.meshes[epoch]) for epoch in epochs[len(known) :]]
        return known

    def average_histories(self, score: Callable[[WireObservations, MeshHistory], Scores], *, growing: bool) -> Scores:
        known = self._scored.setdefault((score, growing), [])
        known += [score(self, _stages_of(mesh, growing)) for mesh in self.meshes[len(known) :]]
        return self.average(known)

    def average(self, scores: Sequence[Scores]) -> Scores:
        return _average_asked(scores, self.asked)


def _average_asked(scores: Sequence[Scores], asked: Masks) -> Scores:
    """The mean over the rows that ask about a node; 0 where none does."""
    said = np.sum(np.reshape(scores, asked.shape), axis=0, where=asked)
    return np.asarray(said / np.maximum(1, asked.sum(axis=0)), np.float64)


def _stages_of(mesh: ObservedMesh, growing: bool) -> MeshHistory:
    """What the observer saw of an epoch's subscribers: one half joined the mesh of the other half, or a quarter left
    after another."""
    stages = mesh.members[None] if mesh.joins is None else mesh.joins[[2, 0]] if growing else mesh.joins
    return MeshHistory(mesh.graph, mesh.distance, mesh.asked, stages)


def _split_histories(meshes: Sequence[ObservedMesh], growing: bool) -> list[MeshHistory]:
    """The meshes of each source, in order. A mesh that gained and lost members was laid again: a history ends there."""
    found: list[list[ObservedMesh]] = []
    for source in dict.fromkeys(mesh.source for mesh in meshes):
        those = [mesh for mesh in meshes if mesh.source == source]
        found.append(those[:1])
        for before, after in pairwise(those):
            less, more = (before, after) if growing else (after, before)
            if (less.members & ~more.members).any():
                found.append([])
            found[-1].append(after)
    return [
        MeshHistory(
            those[0].graph,
            those[0].distance,
            np.any([mesh.asked for mesh in those], axis=0),
            np.array([mesh.members for mesh in those]),
        )
        for those in found
    ]

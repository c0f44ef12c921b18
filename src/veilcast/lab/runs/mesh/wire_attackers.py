"""Every attacker from outside, on a capture of a network whose roles are known.

Attackers receive the cells, the overlay, the share of readers, and the publication times, which any reader of the topic
knows. If no size stands out there are no notifications to follow, and attackers that follow notifications would have
nothing to say. They receive instead the links that carried more than usual just after a publication, and the first cell
of each link. On a network that hides nothing these links are the mesh. On a network that hides everything they are
random.

Two attackers are trained on captures of other worlds: cadence as a linear classifier, and as a classifier in bins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier, fit_binned, fit_linear
from veilcast.lab.attack.observations import ActivityRounds, ByteVolumes, CaptureObservations
from veilcast.lab.attack.observer import cadence, disclosure, flow_correlation, publication_waves
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.ranking import auc, true_positives_at
from veilcast.lab.models.graph import Graph

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
RoleScores: TypeAlias = tuple[str, str, Scores]
"""An attack, a role, and how much each node looks like it."""


@dataclass(frozen=True, eq=False)
class WireCapture:
    """All cells, in the order of time, and public facts. Nodes are numbers."""

    t_us: NDArray[np.int64]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    size: NDArray[np.int64]
    graph: Graph
    subscriber_share: float
    published: NDArray[np.int64]
    heartbeat_us: int
    epoch_us: int

    @cached_property
    def cadence_features(self) -> Scores:
        """The features of each node for a classifier of cadence."""
        seen = cadence.summarise_windows(self.t_us, self.src, self.dst, self.size, _WINDOW_US)
        return cadence.extract_features(seen, self.graph.nodes)


@dataclass(frozen=True, eq=False)
class CaptureRoles:
    publishes: Mask
    subscribes: Mask

    def candidates(self, role: str) -> tuple[Mask, Mask]:
        """The nodes that may have a role, and those that have it. Publishers are in the mesh in any case, and are no
        candidates for subscribers."""
        everybody = np.ones(len(self.publishes), np.bool_)
        return (everybody, self.publishes) if role == "publisher" else (~self.publishes, self.subscribes)


class TrainedCadence(NamedTuple):
    """Classifiers trained on captures with known roles, by role."""

    by_role: dict[str, tuple[LinearClassifier, BinnedClassifier]]


def train_cadence(captures: list[tuple[WireCapture, CaptureRoles]]) -> TrainedCadence:
    def fitted(role: str) -> tuple[LinearClassifier, BinnedClassifier]:
        rows, labels = [], []
        for capture, truth in captures:
            asked, positive = truth.candidates(role)
            rows.append(capture.cadence_features[asked])
            labels.append(positive[asked])
        values, known = np.vstack(rows), np.concatenate(labels)
        return fit_linear(values, known), fit_binned(values, known)

    return TrainedCadence({role: fitted(role) for role in ROLES})


def measure_attackers(capture: WireCapture, truth: CaptureRoles, trained: TrainedCadence) -> list[Measure]:
    """How well each attacker recognises either role. The metrics of publishers have the role in their names."""
    found = []
    for attack, role, scores in score_roles(capture, trained):
        asked, positive = truth.candidates(role)
        guess, known = scores[asked], positive[asked]
        of = "" if role == "subscriber" else f"_{role}"
        found.append(Measure(attack, f"auc{of}", 0, auc(guess, known)))
        found.append(Measure(attack, f"tpr_1{of}", 0, true_positives_at(guess, known, 0.01)))
    for role in ROLES:
        asked, positive = truth.candidates(role)
        of = "" if role == "subscriber" else f"_{role}"
        found.append(Measure("", f"base{of}", 0, float(np.mean(positive[asked]))))
    sizes = len(np.unique(capture.size))
    return [*found, Measure("", "cells", 0, len(capture.size)), Measure("", "sizes", 0, sizes)]


def score_roles(capture: WireCapture, trained: TrainedCadence) -> Iterator[RoleScores]:
    seen = observe_capture(capture)
    for each in attackers_on(CaptureObservations):
        yield each.name, each.role, each.score_topics(seen)[0]
    yield "disclosure", "publisher", disclosure.score_disclosure(seen.busy[:, 0], _bytes(capture, capture.src).T)
    for role, (linear, binned) in trained.by_role.items():
        yield "cadence-linear", role, linear.scores(capture.cadence_features)
        yield "cadence-binned", role, binned.scores(capture.cadence_features)


def observe_capture(capture: WireCapture) -> CaptureObservations:
    """The input of attackers."""
    rows = find_copies(capture)
    first = int(capture.t_us[0])
    epoch = capture.t_us // capture.epoch_us - first // capture.epoch_us
    return CaptureObservations(
        graph=capture.graph,
        present=np.ones((int(epoch[-1]) + 1, capture.graph.nodes), np.bool_),
        src=capture.src[rows],
        dst=capture.dst[rows],
        at=capture.t_us[rows],
        epoch=epoch[rows],
        rounds=ActivityRounds(capture.heartbeat_us, 0, _bytes(capture, capture.dst).T),
        # Rounds begin with the first cell.
        published=capture.published - first,
        topic=np.zeros(len(capture.published), np.int64),
        cadence=cadence.count_gaps(capture.t_us, capture.src, capture.dst, capture.size),
        volumes=ByteVolumes(
            *(_bytes(capture, ends, flow_correlation.BINS_PER_HEARTBEAT) for ends in (capture.src, capture.dst))
        ),
        rate=capture.subscriber_share,
    )


def find_copies(capture: WireCapture) -> NDArray[np.int64]:
    """The rows that look like copies of notifications, or the best substitutes for them."""
    columns = (capture.t_us, capture.src, capture.dst, capture.size)
    found = publication_waves.find_notifications(*columns, capture.heartbeat_us).row
    return found if len(found) else _after_notes(capture)


def _after_notes(capture: WireCapture) -> NDArray[np.int64]:
    _, link = np.unique(capture.src.astype(np.int64) * capture.graph.nodes + capture.dst, return_inverse=True)
    lasted = max(1, int(capture.t_us[-1] - capture.t_us[0]))
    usual = np.bincount(link) * _MOMENT_US / lasted
    found = []
    for begin in capture.published:
        first, last = np.searchsorted(capture.t_us, [begin, begin + _MOMENT_US])
        links, rows, cells = np.unique(link[first:last], return_index=True, return_counts=True)
        found.append(first + rows[cells > usual[links]])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _bytes(capture: WireCapture, ends: NDArray[np.int32], parts: int = 1) -> NDArray[np.float64]:
    """Bytes by node and heartbeat, or part of a heartbeat."""
    bin_us = capture.heartbeat_us // parts
    return flow_correlation.bin_bytes(capture.t_us, ends, capture.size, capture.graph.nodes, bin_us)


ROLES: Final = ("subscriber", "publisher")
ATTACKER_COUNT: Final = len(attackers_on(CaptureObservations)) + 1 + 2 * len(ROLES)
"""Number of pairs of role and attack. An alarm raised by any of them has this many chances to be false."""
_WINDOW_US: Final = 1_000_000
_MOMENT_US: Final = 400_000
"""Time after a publication: a few hops in any profile."""

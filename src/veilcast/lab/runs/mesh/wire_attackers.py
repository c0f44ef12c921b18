"""Every attacker from outside, on a capture of a network whose roles are known.

A capture becomes observation tables, and the job of captures (`capture_job`) attacks them, as it attacks stored tables
and captures of any origin. Attackers receive the cells, the overlay, the share of readers, and the publication times,
which any reader of the topic knows.

Two attackers are trained on captures of other worlds: cadence as a linear classifier, and as a classifier in bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import ClassifierPair, fit_binned, fit_linear
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import WINDOWS, attackers_on
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.measure.ranking import auc, true_positives_at
from veilcast.lab.models.graph import Graph

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
TrainedCadence: TypeAlias = Mapping[str, ClassifierPair]
"""Classifiers by role, trained on captures with known roles."""


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
    def tables(self) -> dict[str, pa.Table]:
        """The observation tables, with a node's number for its name."""
        found: dict[str, pa.Table] = {}
        self.record(TableRecorder("", {name: partial(found.__setitem__, name) for name in CAPTURE_TABLES}))
        return found

    def record(self, recorder: TableRecorder) -> None:
        """Record what the observer has."""
        epoch = self.t_us // self.epoch_us
        nodes, epochs = np.arange(self.graph.nodes), np.arange(epoch[0], epoch[-1] + 1)
        if recorder.wants("cells"):
            columns = {"t_us": self.t_us, "src": self.names(self.src), "dst": self.names(self.dst), "size": self.size}
            recorder.record("cells", epoch=epoch, **columns)
        u, v = self.graph.edges()
        recorder.record("topology", epoch=epochs[0], u=self.names(u), v=self.names(v))
        there = {"epoch": np.repeat(epochs, len(nodes)), "node": self.names(np.tile(nodes, len(epochs)))}
        recorder.record("presence", **there)
        recorder.record("published", topic=_TOPIC, t_us=self.published)
        facts = {
            "heartbeat_us": self.heartbeat_us,
            "epoch_us": self.epoch_us,
            # Rounds begin with the first cell.
            "begins_us": self.t_us[0],
            "subscriber_share": self.subscriber_share,
        }
        recorder.record("facts", name=list(facts), value=np.array(list(facts.values()), np.float64))

    def names(self, nodes: NDArray[Any]) -> pa.Array:
        """Names in the order of numbers."""
        width = len(str(self.graph.nodes - 1))
        return pa.array([f"{node:0{width}d}" for node in range(self.graph.nodes)]).take(pa.array(nodes, pa.int32()))


@dataclass(frozen=True, eq=False)
class CaptureRoles:
    publishes: Mask
    subscribes: Mask

    def candidates(self, role: str) -> tuple[Mask, Mask]:
        """The nodes that may have a role, and those that have it. Publishers are in the mesh in any case, and are no
        candidates for subscribers."""
        everybody = np.ones(len(self.publishes), np.bool_)
        return (everybody, self.publishes) if role == "publisher" else (~self.publishes, self.subscribes)

    def record(self, recorder: TableRecorder, capture: WireCapture) -> None:
        """Record the table `truth`."""
        for role, having in (("publisher", self.publishes), ("subscriber", self.subscribes)):
            since, until = capture.t_us[[0, -1]]
            nodes = capture.names(np.flatnonzero(having))
            recorder.record("truth", topic=_TOPIC, node=nodes, role=role, since_us=since, until_us=until)


def train_cadence(captures: list[tuple[WireCapture, CaptureRoles]]) -> TrainedCadence:
    features = [cadence_features(capture) for capture, _ in captures]

    def fitted(role: str) -> ClassifierPair:
        asked, positive = zip(*(truth.candidates(role) for _, truth in captures), strict=True)
        values = np.vstack([rows[kept] for rows, kept in zip(features, asked, strict=True)])
        known = np.concatenate([having[kept] for having, kept in zip(positive, asked, strict=True)])
        return ClassifierPair(fit_linear(values, known), fit_binned(values, known))

    return {role: fitted(role) for role in ROLES}


def measure_attackers(capture: WireCapture, truth: CaptureRoles, guesses: pa.Table) -> list[Measure]:
    """How well each attacker recognises either role, the share of each role, and facts about the capture."""
    found = measure_capture_guesses(guesses, truth)
    for role in ROLES:
        asked, positive = truth.candidates(role)
        of = "" if role == "subscriber" else f"_{role}"
        found.append(Measure("", f"base{of}", 0, float(np.mean(positive[asked]))))
    sizes = len(np.unique(capture.size))
    return [*found, Measure("", "cells", 0, len(capture.size)), Measure("", "sizes", 0, sizes)]


def measure_capture_guesses(guesses: pa.Table, truth: CaptureRoles) -> list[Measure]:
    """How well each attacker recognises either role. The metrics of publishers have the role in their names."""
    found = []
    for (attack, role), scores in score_roles(guesses).items():
        asked, positive = truth.candidates(role)
        guess, known = scores[asked], positive[asked]
        of = "" if role == "subscriber" else f"_{role}"
        found.append(Measure(attack, f"auc{of}", 0, auc(guess, known)))
        found.append(Measure(attack, f"tpr_1{of}", 0, true_positives_at(guess, known, 0.01)))
    return found


def score_roles(guesses: pa.Table) -> dict[tuple[str, str], Scores]:
    """The scores of each attack for each role, in the order of nodes."""
    guesses = guesses.sort_by("node")
    found: dict[tuple[str, str], list[float]] = {}
    columns = (guesses[name].to_pylist() for name in ("attack", "role", "score"))
    for attack, role, score in zip(*columns, strict=True):
        found.setdefault((attack, role), []).append(score)
    return {key: np.array(scores) for key, scores in found.items()}


def cadence_features(capture: WireCapture) -> Scores:
    return capture_job.observe_tables(capture.tables, {WINDOWS}).seen.cadence_features


ROLES: Final = ("subscriber", "publisher")
ATTACKER_COUNT: Final = len(attackers_on(CaptureObservations))
"""Number of pairs of role and attack. An alarm raised by any of them has this many chances to be false."""
CAPTURE_TABLES: Final = ("cells", "topology", "presence", "published", "facts")
_TOPIC: Final = "a"

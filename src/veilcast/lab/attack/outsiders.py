"""Every attacker that looks from outside, by its name: a record in, a score for each node out.

Each is a file of its own with its own theory; here is only what of a record it is shown. None is told who publishes:
who needs a root takes the one that flows show. A share of readers is granted, as P0 grants their number. Where a record
has several meshes, what is said of each is averaged, unless it is in their differences that an attacker reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import (
    cadence,
    centrality,
    closure,
    disclosure,
    flow_source,
    intersection,
    late_join,
    leaf,
    least_squares,
    majority,
    restructurings,
    roots,
    rumor,
    survivor,
)
from veilcast.lab.attack.record import Record

Scores = NDArray[np.float64]


NOTES: Final = "notes"
ACTIVITY: Final = "activity"
CADENCE: Final = "cadence"
VOLUMES: Final = "volumes"


class Outsider(NamedTuple):
    attack: str
    role: str
    """Whom it looks for."""
    scores: Callable[[Record, float], Scores]
    """By topic and node; where topics cannot be told apart, of all in one. The number is the share of readers."""
    needs: str = NOTES
    """What of a record it reads beside the overlay."""


def _leaf(record: Record, _: float) -> Scores:
    return _mean(record, (leaf.scores(src, dst, record.nodes) for src, dst in record.flows))


def _majority(record: Record, rate: float) -> Scores:
    readers = round(rate * record.nodes)
    return _mean(record, (majority.named(src, dst, record.nodes, readers) for src, dst in record.flows))


def _persistence(record: Record, _: float) -> Scores:
    """With closure: to be there without being needed, again and again."""
    if not record.meshes:
        return np.zeros((1, record.nodes))
    inside = [closure.supported(record.graph, mesh.members, mesh.distance) for mesh in record.meshes]
    needed = [
        closure.needed(record.graph, members, mesh.distance)
        for members, mesh in zip(inside, record.meshes, strict=True)
    ]
    asked = [mesh.asked for mesh in record.meshes]
    return restructurings.likelihood(np.array(inside), np.array(asked), np.array(needed))[None]


def _closure(record: Record, rate: float) -> Scores:
    return _mean(record, (closure.posterior(record.graph, mesh.members, mesh.distance, rate) for mesh in record.meshes))


def _centrality(record: Record, _: float) -> Scores:
    return _mean(record, (centrality.scores(record.graph, mesh.members, mesh.distance) for mesh in record.meshes))


def _intersection(record: Record, _: float) -> Scores:
    """In what share of the publications it was still left."""
    return _mean(record, intersection.remaining(record.received))


def _disclosure(record: Record, _: float) -> Scores:
    return np.array([disclosure.scores(busy, record.rounds.activity) for busy in record.busy.T])


def _least_squares(record: Record, _: float) -> Scores:
    if not len(record.busy):
        return np.zeros((1, record.nodes))
    return least_squares.weights(least_squares.moments(record.busy.astype(np.float64), record.rounds.activity))


def _unlike_readers(record: Record, _: float) -> Scores:
    return cadence.scores(record.cadence, record.nodes).received[None]


def _unlike_publishers(record: Record, _: float) -> Scores:
    return cadence.scores(record.cadence, record.nodes).sent[None]


def _late_join(record: Record, rate: float) -> Scores:
    """The clearest of its comings: from one mesh to the next of the same publisher."""
    found = np.zeros(record.nodes)
    for before, after in pairwise(record.meshes):
        if before.source == after.source:
            came = late_join.scores(record.graph, before.members, after.members, after.distance, rate)
            np.maximum(found, came, out=found)
    return found[None]


def _survivor(record: Record, rate: float) -> Scores:
    """Of those who were there at first, and from mesh to mesh are fewer."""
    if not record.meshes:
        return np.zeros((1, record.nodes))
    first = record.meshes[0]
    looks = [mesh.members for mesh in record.meshes if mesh.source == first.source]
    return survivor.scores(record.graph, np.logical_and.accumulate(looks), first.distance, rate)[None]


def _flow_source(record: Record, _: float) -> Scores:
    return flow_source.scores(record.publication, record.src, record.dst, record.at, record.nodes)[None]


def _roots(record: Record, _: float) -> Scores:
    return _mean(record, (roots.scores(record.graph, mesh.members) for mesh in record.meshes))


def _rumor(record: Record, _: float) -> Scores:
    return _mean(record, (rumor.scores(record.graph, mesh.members) for mesh in record.meshes))


def _follows(record: Record, _: float) -> Scores:
    return record.correlated.follows[None]


def _leads(record: Record, _: float) -> Scores:
    return record.correlated.leads[None]


def _mean(record: Record, found: Iterable[Scores | NDArray[np.bool_]]) -> Scores:
    total, count = np.zeros(record.nodes), 0
    for each in found:
        total += each
        count += 1
    return (total / max(1, count))[None]


OUTSIDERS: Final = (
    Outsider("leaf", "subscriber", _leaf),
    Outsider("majority", "subscriber", _majority),
    Outsider("persistence", "subscriber", _persistence),
    Outsider("closure", "subscriber", _closure),
    Outsider("centrality", "subscriber", _centrality),
    Outsider("intersection", "subscriber", _intersection),
    Outsider("disclosure", "subscriber", _disclosure, ACTIVITY),
    Outsider("least-squares", "subscriber", _least_squares, ACTIVITY),
    Outsider("cadence", "subscriber", _unlike_readers, CADENCE),
    Outsider("late-join", "subscriber", _late_join),
    Outsider("survivor", "subscriber", _survivor),
    Outsider("flow-source", "publisher", _flow_source),
    Outsider("roots", "publisher", _roots),
    Outsider("rumor", "publisher", _rumor),
    Outsider("cadence", "publisher", _unlike_publishers, CADENCE),
    Outsider("flow-correlation", "subscriber", _follows, VOLUMES),
    Outsider("flow-correlation", "publisher", _leads, VOLUMES),
)
ATTACKS: Final = tuple(dict.fromkeys(each.attack for each in OUTSIDERS))

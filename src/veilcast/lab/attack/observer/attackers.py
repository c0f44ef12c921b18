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

from veilcast.lab.attack.observations import CaptureObservations
from veilcast.lab.attack.observer import cadence, closure, disclosure, leaf_rule, mesh_source

Scores = NDArray[np.float64]


NOTES: Final = "notes"
ACTIVITY: Final = "activity"
CADENCE: Final = "cadence"
VOLUMES: Final = "volumes"


class WireAttacker(NamedTuple):
    attack: str
    role: str
    """Whom it looks for."""
    scores: Callable[[CaptureObservations, float], Scores]
    """By topic and node; where topics cannot be told apart, of all in one. The number is the share of readers."""
    needs: str = NOTES
    """What of a record it reads beside the overlay."""


def _leaf(record: CaptureObservations, _: float) -> Scores:
    return _mean(record, (leaf_rule.score_leaf_rule(src, dst, record.nodes) for src, dst in record.flows))


def _majority(record: CaptureObservations, rate: float) -> Scores:
    readers = round(rate * record.nodes)
    return _mean(record, (leaf_rule.name_majority(src, dst, record.nodes, readers) for src, dst in record.flows))


def _persistence(record: CaptureObservations, _: float) -> Scores:
    """With closure: to be there without being needed, again and again."""
    if not record.meshes:
        return np.zeros((1, record.nodes))
    inside = [closure.supported_members(record.graph, mesh.members, mesh.distance) for mesh in record.meshes]
    needed = [
        closure.need_probability(record.graph, members, mesh.distance)
        for members, mesh in zip(inside, record.meshes, strict=True)
    ]
    asked = [mesh.asked for mesh in record.meshes]
    return closure.score_membership_likelihood(np.array(inside), np.array(asked), np.array(needed))[None]


def _closure(record: CaptureObservations, rate: float) -> Scores:
    return _mean(
        record, (closure.score_closure(record.graph, mesh.members, mesh.distance, rate) for mesh in record.meshes)
    )


def _centrality(record: CaptureObservations, _: float) -> Scores:
    return _mean(
        record, (closure.score_centrality(record.graph, mesh.members, mesh.distance) for mesh in record.meshes)
    )


def _intersection(record: CaptureObservations, _: float) -> Scores:
    """In what share of the publications it was still left."""
    return _mean(record, disclosure.remaining_candidates(record.received))


def _disclosure(record: CaptureObservations, _: float) -> Scores:
    return np.array([disclosure.score_disclosure(busy, record.rounds.activity) for busy in record.busy.T])


def _least_squares(record: CaptureObservations, _: float) -> Scores:
    if not len(record.busy):
        return np.zeros((1, record.nodes))
    return disclosure.solve_weights(disclosure.sum_moments(record.busy.astype(np.float64), record.rounds.activity))


def _unlike_readers(record: CaptureObservations, _: float) -> Scores:
    return cadence.score_cadence(record.cadence, record.nodes).received[None]


def _unlike_publishers(record: CaptureObservations, _: float) -> Scores:
    return cadence.score_cadence(record.cadence, record.nodes).sent[None]


def _late_join(record: CaptureObservations, rate: float) -> Scores:
    """The clearest of its comings: from one mesh to the next of the same publisher."""
    found = np.zeros(record.nodes)
    for before, after in pairwise(record.meshes):
        if before.source == after.source:
            came = closure.score_late_join(record.graph, before.members, after.members, after.distance, rate)
            np.maximum(found, came, out=found)
    return found[None]


def _survivor(record: CaptureObservations, rate: float) -> Scores:
    """Of those who were there at first, and from mesh to mesh are fewer."""
    if not record.meshes:
        return np.zeros((1, record.nodes))
    first = record.meshes[0]
    looks = [mesh.members for mesh in record.meshes if mesh.source == first.source]
    return closure.score_survivors(record.graph, np.logical_and.accumulate(looks), first.distance, rate)[None]


def _flow_source(record: CaptureObservations, _: float) -> Scores:
    return mesh_source.score_flow_source(record.publication, record.src, record.dst, record.at, record.nodes)[None]


def _roots(record: CaptureObservations, _: float) -> Scores:
    return _mean(record, (mesh_source.score_roots(record.graph, mesh.members) for mesh in record.meshes))


def _rumor(record: CaptureObservations, _: float) -> Scores:
    return _mean(record, (mesh_source.score_rumor(record.graph, mesh.members) for mesh in record.meshes))


def _follows(record: CaptureObservations, _: float) -> Scores:
    return record.correlated.follows[None]


def _leads(record: CaptureObservations, _: float) -> Scores:
    return record.correlated.leads[None]


def _mean(record: CaptureObservations, found: Iterable[Scores | NDArray[np.bool_]]) -> Scores:
    total, count = np.zeros(record.nodes), 0
    for each in found:
        total += each
        count += 1
    return (total / max(1, count))[None]


WIRE_ATTACKERS: Final = (
    WireAttacker("leaf", "subscriber", _leaf),
    WireAttacker("majority", "subscriber", _majority),
    WireAttacker("persistence", "subscriber", _persistence),
    WireAttacker("closure", "subscriber", _closure),
    WireAttacker("centrality", "subscriber", _centrality),
    WireAttacker("intersection", "subscriber", _intersection),
    WireAttacker("disclosure", "subscriber", _disclosure, ACTIVITY),
    WireAttacker("least-squares", "subscriber", _least_squares, ACTIVITY),
    WireAttacker("cadence", "subscriber", _unlike_readers, CADENCE),
    WireAttacker("late-join", "subscriber", _late_join),
    WireAttacker("survivor", "subscriber", _survivor),
    WireAttacker("flow-source", "publisher", _flow_source),
    WireAttacker("roots", "publisher", _roots),
    WireAttacker("rumor", "publisher", _rumor),
    WireAttacker("cadence", "publisher", _unlike_publishers, CADENCE),
    WireAttacker("flow-correlation", "subscriber", _follows, VOLUMES),
    WireAttacker("flow-correlation", "publisher", _leads, VOLUMES),
)
ATTACKS: Final = tuple(dict.fromkeys(each.attack for each in WIRE_ATTACKERS))

"""Attackers of a global observer: each scores nodes from observations of wires. `registry` names them.

No attacker is told the publisher: an attacker that needs a root takes the one that flows show. The share of subscribers
is granted, as P0 grants their number. The theory of each attacker is in the module that it calls. An attacker on single
meshes or publications averages over them. Model runs (`EpochObservations`) grant more than captures do: presence in
every epoch, the rate of covers, and the mesh at several moments of joining.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from veilcast.lab.attack.observer import cadence, closure, disclosure, leaf_rule, mesh_source
from veilcast.lab.attack.observer.observations import (
    CaptureObservations,
    EpochObservations,
    ObservedFlow,
    ObservedMesh,
    Scores,
    WireObservations,
)


def score_leaf(seen: WireObservations) -> Scores:
    return seen.average(seen.each_flow(_leaf_of_flow))


def score_majority(seen: WireObservations) -> Scores:
    return seen.average(seen.each_flow(_majority_of_flow))


def score_centrality(seen: WireObservations) -> Scores:
    return seen.average(seen.each_mesh(_centrality_of_mesh))


def score_disclosure(seen: WireObservations) -> Scores:
    """Topics x nodes."""
    return np.array([disclosure.score_disclosure(busy, seen.activity) for busy in seen.busy.T])


def score_least_squares(seen: CaptureObservations) -> Scores:
    """Topics x nodes."""
    return np.zeros((1, seen.nodes)) if seen.moments is None else disclosure.solve_weights(seen.moments)


def score_least_squares_of_epochs(seen: EpochObservations) -> Scores:
    """The topic in question alone; 0 before any round. Rounding removes what is left of constant activity."""
    if seen.moments is None:
        return np.zeros(seen.nodes)
    return np.asarray(np.round(disclosure.solve_weights(seen.moments)[0], _DIGITS), np.float64)


def score_flow_source(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_flow(_source_of_flow))


def score_roots(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_mesh(_root_of_mesh, slow=True))


def score_rumor(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_mesh(_rumor_of_mesh, slow=True))


def score_persistence(seen: CaptureObservations) -> Scores:
    """Membership without being needed, mesh after mesh."""
    return _membership_likelihood(seen.meshes, 0.0) if seen.meshes else np.zeros(seen.nodes)


def score_persistence_of_epochs(seen: EpochObservations) -> Scores:
    return closure.score_membership_frequency(seen.members, seen.asked)


def score_closure(seen: CaptureObservations) -> Scores:
    return seen.average(seen.each_mesh(_closure_of_mesh))


def score_closure_of_epochs(seen: EpochObservations) -> Scores:
    """Log-odds over all epochs, without the prior."""
    return _membership_likelihood(seen.meshes, seen.covers)


def score_intersection(seen: CaptureObservations) -> Scores:
    """The share of the publications up to which the node was in all of them."""
    return seen.mean([each.astype(np.float64) for each in disclosure.remaining_candidates(seen.received)])


def score_intersection_of_epochs(seen: EpochObservations) -> Scores:
    # An absent node may have been the target as well.
    remaining = disclosure.remaining_candidates(seen.members | ~seen.asked)
    return np.asarray(remaining[-1], np.float64)


def score_late_join(seen: CaptureObservations) -> Scores:
    """The clearest of a node's joins, from one mesh to the next of the same publisher."""
    found = np.zeros(seen.nodes)
    for before, after in pairwise(seen.meshes):
        if before.source == after.source:
            joined = closure.score_late_join(seen.graph, before.members, after.members, after.distance, seen.rate)
            np.maximum(found, joined, out=found)
    return found


def score_late_join_of_epochs(seen: EpochObservations) -> Scores:
    return seen.average(seen.each_mesh(_join_of_mesh))


def score_survivor(seen: CaptureObservations) -> Scores:
    """The members of the first mesh, of which fewer are left from mesh to mesh."""
    if not seen.meshes:
        return np.zeros(seen.nodes)
    first = seen.meshes[0]
    looks = [mesh.members for mesh in seen.meshes if mesh.source == first.source]
    return closure.score_survivors(seen.graph, np.logical_and.accumulate(looks), first.distance, seen.rate)


def score_survivor_of_epochs(seen: EpochObservations) -> Scores:
    return seen.average(seen.each_mesh(_survivor_of_mesh))


def score_cadence_of_subscribers(seen: CaptureObservations) -> Scores:
    return cadence.score_cadence(seen.gaps, seen.nodes).received


def score_cadence_of_publishers(seen: CaptureObservations) -> Scores:
    return cadence.score_cadence(seen.gaps, seen.nodes).sent


def score_disclosure_of_publishers(seen: CaptureObservations) -> Scores:
    """The topic in question alone: what each node sends more while it is busy."""
    return disclosure.score_disclosure(seen.busy[:, 0], seen.departures)


def score_cadence_linear(seen: CaptureObservations, role: str) -> Scores:
    return seen.trained[role].linear.scores(seen.cadence_features)


def score_cadence_binned(seen: CaptureObservations, role: str) -> Scores:
    return seen.trained[role].binned.scores(seen.cadence_features)


def score_followers(seen: CaptureObservations) -> Scores:
    return seen.correlated.follows


def score_leaders(seen: CaptureObservations) -> Scores:
    return seen.correlated.leads


def mark_members(seen: EpochObservations) -> Scores:
    """1 for the members of the last mesh that it says anything about."""
    return (seen.meshes[-1].members & seen.meshes[-1].asked).astype(np.float64)


def mark_certain_subscribers(seen: EpochObservations) -> Scores:
    """1 for the subscribers that closure is certain of by the last mesh."""
    mesh = seen.meshes[-1]
    return closure.find_certain_subscribers(mesh.graph, mesh.members, mesh.distance).astype(np.float64)


def _leaf_of_flow(seen: WireObservations, flow: ObservedFlow) -> Scores:
    return leaf_rule.score_leaf_rule(flow.src, flow.dst, seen.nodes)


def _majority_of_flow(seen: WireObservations, flow: ObservedFlow) -> Scores:
    return leaf_rule.name_majority(flow.src, flow.dst, seen.nodes, seen.subscribers).astype(np.float64)


def _source_of_flow(seen: WireObservations, flow: ObservedFlow) -> Scores:
    return mesh_source.score_flow_source(np.zeros(flow.src.size, np.int64), flow.src, flow.dst, flow.at, seen.nodes)


def _centrality_of_mesh(_: WireObservations, mesh: ObservedMesh) -> Scores:
    return closure.score_centrality(mesh.graph, mesh.members, mesh.distance)


def _closure_of_mesh(seen: WireObservations, mesh: ObservedMesh) -> Scores:
    return closure.score_closure(mesh.graph, mesh.members, mesh.distance, seen.rate)


def _root_of_mesh(_: WireObservations, mesh: ObservedMesh) -> Scores:
    return mesh_source.score_roots(mesh.graph, mesh.members)


def _rumor_of_mesh(_: WireObservations, mesh: ObservedMesh) -> Scores:
    return mesh_source.score_rumor(mesh.graph, mesh.members)


def _join_of_mesh(seen: WireObservations, mesh: ObservedMesh) -> Scores:
    """One half of the subscribers joins the mesh of the other half; both are scored."""
    if mesh.joins is None:
        return np.zeros(seen.nodes)
    after, before = mesh.joins[0], mesh.joins[2]
    first = closure.score_closure(mesh.graph, before, mesh.distance, seen.rate)
    joined = closure.score_late_join(mesh.graph, before, after, mesh.distance, seen.rate)
    return np.where(before, first, joined)


def _survivor_of_mesh(seen: WireObservations, mesh: ObservedMesh) -> Scores:
    if mesh.joins is None:
        return np.zeros(seen.nodes)
    return closure.score_survivors(mesh.graph, mesh.joins, mesh.distance, seen.rate)


def _membership_likelihood(meshes: list[ObservedMesh], covers: float) -> Scores:
    supported, asked, need = (
        np.array(columns) for columns in zip(*((mesh.supported, mesh.asked, mesh.need) for mesh in meshes), strict=True)
    )
    return closure.score_membership_likelihood(supported, asked, need, covers)


_DIGITS: Final = 6

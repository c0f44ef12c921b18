"""Attackers of a global observer: each scores nodes from observations of wires. `registry` names them.

No attacker is told the publisher: an attacker that needs a root takes the one that flows show. The share of subscribers
is granted, as P0 grants their number. The theory of each attacker is in the module that it calls. An attacker on single
meshes or publications averages over them. Where a docstring names AUCs, another formula was measured beside this one
and dropped: ten epochs of the shell game with fresh covers, read as a model run and as a capture of the same cells
(decision 0053).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from veilcast.lab.attack.observer import cadence, closure, disclosure, leaf_rule, mesh_source
from veilcast.lab.attack.observer.observations import (
    CaptureObservations,
    EpochObservations,
    MeshHistory,
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


def score_least_squares(seen: WireObservations) -> Scores:
    """Topics x nodes; 0 before any round. Rounding removes what is left of constant activity."""
    if seen.moments is None:
        return np.zeros((1, seen.nodes))
    return np.asarray(np.round(disclosure.solve_weights(seen.moments), _DIGITS), np.float64)


def score_flow_source(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_flow(_source_of_flow))


def score_roots(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_mesh(_root_of_mesh, slow=True))


def score_rumor(seen: WireObservations) -> Scores:
    return seen.mean(seen.each_mesh(_rumor_of_mesh, slow=True))


def score_persistence(seen: WireObservations) -> Scores:
    """Membership in mesh after mesh, without any use of the overlay. What else a mesh tells is in `score_closure`.

    AUC .961 and .961; the likelihood ratio without covers .968 and .899.
    """
    return closure.score_membership_frequency(seen.members, seen.asked) if seen.meshes else np.zeros(seen.nodes)


def score_closure(seen: WireObservations) -> Scores:
    """Log-odds over all meshes, without the prior. AUC .993 and .912; the mean probability .853 and .784."""
    if not seen.meshes:
        return np.zeros(seen.nodes)
    supported, need = ([getattr(mesh, name) for mesh in seen.meshes] for name in ("supported", "need"))
    return closure.score_membership_likelihood(np.array(supported), seen.asked, np.array(need), seen.covers)


def score_intersection(seen: WireObservations) -> Scores:
    """The share of the meshes up to which the node was a candidate in all of them: absent nodes may be the target, too.

    AUC .958 and .958; by receivers of publications, absent or not, .853 on a capture. Only the candidates that are left
    at the end: .958 and .958, and .935 for .975 where a subscriber was missed once.
    """
    asked = seen.asked
    remaining = disclosure.remaining_candidates(seen.members | ~asked) & asked.any(axis=0)
    return seen.mean([*remaining.astype(np.float64)])


def score_late_join(seen: WireObservations) -> Scores:
    """AUC .900 and .784; the clearest join of each node, without those that were there before, .715 and .344."""
    return seen.average_histories(_join_of_history, growing=True)


def score_survivor(seen: WireObservations) -> Scores:
    """AUC .928 and .784; the members of the first mesh that are left from mesh to mesh .792 and .481."""
    return seen.average_histories(_survivor_of_history, growing=False)


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
    return np.zeros(seen.nodes) if seen.correlated is None else seen.correlated.follows


def score_leaders(seen: CaptureObservations) -> Scores:
    return np.zeros(seen.nodes) if seen.correlated is None else seen.correlated.leads


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


def _root_of_mesh(_: WireObservations, mesh: ObservedMesh) -> Scores:
    return mesh_source.score_roots(mesh.graph, mesh.members)


def _rumor_of_mesh(_: WireObservations, mesh: ObservedMesh) -> Scores:
    return mesh_source.score_rumor(mesh.graph, mesh.members)


def _join_of_history(seen: WireObservations, history: MeshHistory) -> Scores:
    """Members of the first look by closure, newcomers by their join."""
    graph, distance, _, looks = history
    found = closure.score_closure(graph, looks[0], distance, seen.rate)
    for before, after in pairwise(looks):
        joined = closure.score_late_join(graph, before, after, distance, seen.rate)
        found = np.where(before, found, joined)
    return found


def _survivor_of_history(seen: WireObservations, history: MeshHistory) -> Scores:
    return closure.score_survivors(history.graph, history.looks, history.distance, seen.rate)


_DIGITS: Final = 6

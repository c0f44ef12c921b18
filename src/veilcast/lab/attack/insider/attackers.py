"""Attackers of a coalition: each scores nodes from `CoalitionObservations`. `registry` names them.

The theory of each attacker is in the module that it calls. Attackers know the public parameters of the network
(`PublicKnowledge`). Trained attackers need classifiers that the coalition trained on networks of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from veilcast.lab.attack.insider import advert_origin, lone_insider, publisher_evidence, swap_handover
from veilcast.lab.attack.insider.observations import CoalitionObservations, Scores


def score_group_tests(coalition: CoalitionObservations) -> Scores:
    return coalition.belief


def score_linear(coalition: CoalitionObservations) -> Scores:
    return _score_trained(coalition, "linear")


def score_binned(coalition: CoalitionObservations) -> Scores:
    return _score_trained(coalition, "binned")


def score_handover(coalition: CoalitionObservations) -> Scores:
    return swap_handover.score_handover(coalition.graph, coalition.seen, coalition.distance)


def score_first_spy(coalition: CoalitionObservations) -> Scores:
    adverts = coalition.adverts
    return advert_origin.score_first_spy(adverts.message, adverts.peer, np.zeros(len(adverts.peer)), coalition.nodes)


def score_trilateration(coalition: CoalitionObservations) -> Scores:
    """The mean fit over the epochs in which chain values were heard."""
    heard = [each for each in coalition.chain_fits if each is not None]
    return np.mean(heard, axis=0) if heard else np.zeros(coalition.nodes)


def score_predecessor(coalition: CoalitionObservations) -> Scores:
    """The coalition knows when a publisher changes its first relay; each relay's walks are independent evidence."""
    graph, hostile, known, total = coalition.graph, coalition.hostile, coalition.known, np.zeros(coalition.nodes)
    for first, end in coalition.stages:
        passed, far = coalition.passed_between(first, end), coalition.distance[first:end]
        total += publisher_evidence.score_stems(graph, passed, hostile, far, known.onward, kept=known.kept)
    return total


def score_presence(coalition: CoalitionObservations) -> Scores:
    """Presence during publications; where publishers wait for a successor, also its absence during silence."""
    present, published, known = coalition.seen.present, coalition.read > 0, coalition.known
    found = publisher_evidence.score_presence(present, published, known.hold)
    if not known.waits or published.all() or known.departures > 1 or known.hold:
        return found
    for first, end in coalition.stages:
        successor = publisher_evidence.score_successors(present[first:end], published[first:end])
        found = found + publisher_evidence.score_behind_successor(coalition.graph, successor)
    return found


def score_stems_and_presence(coalition: CoalitionObservations) -> Scores:
    known = coalition.known
    scores = [
        publisher_evidence.score_stems_and_presence(
            coalition.graph,
            coalition.seen.epoch_range(first, end),
            coalition.passed_between(first, end),
            coalition.read[first:end],
            onward=known.onward,
            departures=known.departures,
            hold=known.hold,
        )
        for first, end in coalition.stages
    ]
    return np.asarray(np.sum(scores, axis=0), np.float64)


def score_pruned_branches(insider: CoalitionObservations) -> Scores:
    return lone_insider.score_subscribers_by_pruning(insider, insider.known.acting, timed=False)


def score_timed_branches(insider: CoalitionObservations) -> Scores:
    return lone_insider.score_subscribers_by_pruning(insider, insider.known.acting, timed=True)


def mark_lasting_first_spy(coalition: CoalitionObservations) -> Scores:
    """1 for a node that first spy suspects most, for some epochs in a row; an epoch without adverts says nothing."""
    adverts, rows = coalition.adverts, []
    for epoch in range(coalition.epochs):
        here = adverts.epoch == epoch
        peer, message = adverts.peer[here], adverts.message[here]
        scores = advert_origin.score_first_spy(message, peer, np.zeros(len(peer)), coalition.nodes)
        rows.append(scores if len(peer) else np.full(coalition.nodes, 1 / coalition.nodes))
    return _mark_lasting(np.array(rows), coalition)


def mark_lasting_trilateration(coalition: CoalitionObservations) -> Scores:
    """1 for a node that trilateration suspects most, for some epochs in a row."""
    fits = [np.zeros(coalition.nodes) if each is None else each for each in coalition.chain_fits]
    return _mark_lasting(np.array(fits), coalition)


def _mark_lasting(by_epoch: Scores, coalition: CoalitionObservations) -> Scores:
    """The honest nodes that led alone, by all epochs so far, `_STAYS` epochs in a row; `by_epoch` is epochs x nodes."""
    honest = np.flatnonzero(~coalition.hostile)
    so_far, found = np.cumsum(by_epoch, axis=0)[:, honest], np.zeros(coalition.nodes)
    first = so_far == so_far.max(axis=1, keepdims=True)
    leads = first & (np.count_nonzero(first, axis=1) == 1)[:, None]
    for epoch in range(_STAYS, len(leads) + 1):
        found[honest[leads[epoch - _STAYS : epoch].all(axis=0)]] = 1.0
    return found


def _score_trained(coalition: CoalitionObservations, attack: str) -> Scores:
    trained = coalition.known.trained
    # A run with fewer epochs than any training is judged by the next larger one.
    enough = min(epochs for name, epochs in trained if name == attack and epochs >= coalition.epochs)
    return trained[attack, enough].scores(coalition.features)


_STAYS: Final = 5
"""Epochs in a row after which a lead counts."""

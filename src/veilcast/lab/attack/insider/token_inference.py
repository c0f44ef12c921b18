"""Tokens without keys: which topic a token stands for, and which tokens of two epochs are one topic's.

Token frequency: tokens hide the names of topics, but not how many nodes ask for them (Naveed and others 2015). The
popularity of topics is roughly public. Insiders without any topic's key count how often each token is asked for on
their links, and how many nodes might have asked (`count_requests`). If a node subscribes to topic j with probability
p(j), the counts are binomial, and the likeliest naming of tokens is an assignment problem. Where all tokens have the
same chance to be seen, sorting both solves it (Lacharite and Paterson 2015). So naming by rank is not a rule of thumb
but the best that counts alone allow. The tokens that one neighbour asks for together tell more. With p(j, j') the share
of users that subscribe to both, each token has a likelihood given the names of the others (Cash and others 2015, on
keywords), and exchanges improve the naming.

Relinking: tokens that change with the epoch are recognised by what stays around them. For every token of an epoch a
coalition without keys sees on which of its links it was asked for, how many notifications came, and, by the hash chain,
where the flood began. If the next epoch's tokens are asked for on the same links, rotation hides nothing. Each pair of
an old and a new token gets the log-likelihood ratio of one topic against any two:
- links: a neighbour that asked here asks here again with a probability that is learnt from the pairs matched so far,
  beginning with those whose sets of links overlap most (Jaccard); against the share of tokens asked for there at all;
- notifications: both counts have one rate, or two, where rates differ between topics by a Gamma law;
- origins: two topics rarely share an origin, and one topic rarely changes it, if topics keep theirs.

The best assignment of new tokens to old ones is the linking. Epochs form a chain: a topic that is lost once stays lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import ASKED, AWAY, LinkObservations

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def count_requests(graph: Graph, sights: LinkObservations) -> tuple[Floats, Floats]:
    """How many neighbours asked for a token, by epoch; and how many would have if every node subscribed.

    A node with several possible parents chooses an insider with the share of its parents that are insiders.
    """
    far = origin_distances(graph, sights)
    below = (sights.seen != AWAY) & (far[:, sights.peer] == far[:, sights.observer] + 1)
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    exposure = np.empty(len(far))
    for epoch, distance in enumerate(far):
        nearer = (distance[ends] > 0) & (distance[graph.targets] == distance[ends] - 1)
        parents = np.bincount(ends[nearer], minlength=graph.nodes)
        exposure[epoch] = (1 / parents[sights.peer[below[epoch]]]).sum()
    return _mark_requests(sights).sum(axis=1, dtype=np.float64), exposure


def count_pairs(tokens: Sequence[LinkObservations], nodes: int) -> Floats:
    """Tokens x tokens: how many neighbours asked for both, in one epoch or in two."""
    reads = np.zeros((nodes, len(tokens)))
    for token, sights in enumerate(tokens):
        reads[sights.peer[_mark_requests(sights).any(axis=0)], token] = 1.0
    return reads.T @ reads


def name_by_rank(frequency: Floats, popularity: Floats) -> NDArray[np.int64]:
    """The topic of the same rank, by token."""
    topics = np.empty(frequency.size, np.int64)
    topics[np.argsort(-frequency, kind="stable")] = np.argsort(-popularity, kind="stable")[: frequency.size]
    return topics


def naming_likelihoods(asked: Floats, exposure: Floats, popularity: Floats) -> Floats:
    """Tokens x topics: the log-likelihood of these counts if the token is that topic's."""
    none = np.maximum(0.0, exposure - asked)
    read, unread = np.log(popularity + _TINY), np.log(1 - popularity + _TINY)
    return np.asarray(np.outer(asked, read) + np.outer(none, unread), np.float64)


def assign_best(likelihood: Floats) -> NDArray[np.int64]:
    """Its column in the assignment with the largest sum, by row; -1 for rows that get none."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(likelihood, maximize=True)
    topics = np.full(likelihood.shape[0], -1)
    topics[rows] = columns
    return topics


def refine_naming(first: Floats, pairs: Floats, together: Floats) -> NDArray[np.int64]:
    """Its topic, from the likelihoods `first` and from pairs, by token. `pairs` counts how often one neighbour asked
    for both tokens; `together` is the share of users that subscribe to both topics.

    It starts with the best naming without pairs. Two tokens at a time exchange their names while that is likelier.
    """
    shared = together.sum() - np.trace(together)
    if not shared:
        return assign_best(first)  # Nobody subscribes to two topics, so pairs say nothing.
    apart = np.log(together / shared + _TINY)
    both = pairs * (1 - np.eye(len(pairs)))
    topics, better = assign_best(first), True
    while better:
        better = False
        for i in range(len(first)):
            for j in range(i):
                other = topics.copy()
                other[i], other[j] = topics[j], topics[i]
                if (
                    _pair_likelihood(first, both, apart, other, i, j)
                    > _pair_likelihood(first, both, apart, topics, i, j) + _TINY
                ):
                    topics, better = other, True
    return topics


def jaccard_similarity(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: common links divided by all links of either; a row is a token's set of links."""
    old, new = before.astype(np.float64), after.astype(np.float64)
    common = old @ new.T
    either = old.sum(axis=1)[:, None] + new.sum(axis=1) - common
    return np.asarray(common / np.maximum(1.0, either), np.float64)


def compare_links(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: the log-likelihood ratio of the links that ask for them."""
    usual_before, usual = _request_share(before), _request_share(after)
    old, new = before.astype(np.float64), after.astype(np.float64)
    found = jaccard_similarity(before, after)
    for _ in range(_ROUNDS):
        link = assign_best(found)
        held = link >= 0
        moved = (old[held] - usual_before) * (new[link[held]] - usual)
        again = np.clip(moved.sum() / (len(moved) * (usual_before * (1 - usual_before)).sum()), 0.0, _SURE)
        stays, begins = again + (1 - again) * usual, (1 - again) * usual
        kept, left = np.log(stays / usual), np.log((1 - stays) / (1 - usual))
        came, none = np.log(begins / usual), np.log((1 - begins) / (1 - usual))
        found = (old * kept) @ new.T + (old * left) @ (1 - new).T
        found += ((1 - old) * came) @ new.T + ((1 - old) * none) @ (1 - new).T
    return found


def compare_counts(before: Floats, after: Floats) -> Floats:
    """The same for the number of notifications, or of asking links; a negative number is unknown and says nothing."""
    counts = np.concatenate((before, after))
    counts = counts[counts >= 0]
    if counts.size < 2 or (excess := float(counts.var() - counts.mean())) <= 0:
        return np.zeros((before.size, after.size))
    shape, rate = float(counts.mean()) ** 2 / excess, float(counts.mean()) / excess
    one, two = np.maximum(before, 0)[:, None], np.maximum(after, 0)[None, :]
    ratio = (
        _log_mixture(one + two, shape, rate, 2) - _log_mixture(one, shape, rate, 1) - _log_mixture(two, shape, rate, 1)
    )
    return np.where((before >= 0)[:, None] & (after >= 0), ratio, 0.0)


def compare_origins(before: NDArray[np.int32], after: NDArray[np.int32], nodes: int) -> Floats:
    """The same for the origins of floods, in an overlay of `nodes` nodes; a negative origin is unknown."""
    known = (before >= 0)[:, None] & (after >= 0)
    return np.where(known, np.where(before[:, None] == after, np.log(nodes), np.log(_MOVES)), 0.0)


def _mark_requests(sights: LinkObservations) -> NDArray[np.bool_]:
    """E x links: which peers asked. Where timing tells which did so at once, only those count: they are subscribers."""
    asked: NDArray[np.bool_] = sights.delay == 0 if (sights.delay >= 0).any() else sights.seen == ASKED
    return asked


def _pair_likelihood(first: Floats, both: Floats, apart: Floats, topics: NDArray[np.int64], i: int, j: int) -> float:
    """The part of a naming's likelihood that two tokens contribute."""
    pair = [i, j]
    alone = first[pair, topics[pair]].sum() + (both[pair] * apart[topics[pair]][:, topics]).sum()
    return float(alone - both[i, j] * apart[topics[i], topics[j]])


def _request_share(asked: Mask) -> Floats:
    """The share of tokens that are asked for there, by link; never 0 or 1."""
    return np.asarray((np.count_nonzero(asked, axis=0) + 0.5) / (len(asked) + 1), np.float64)


def _log_mixture(total: Floats, shape: float, rate: float, counts: int) -> Floats:
    """The log-probability of `counts` counts of one rate, drawn by a Gamma law, with this total; without their
    factorials."""
    drawn = gammaln(shape + total) - gammaln(shape) + shape * np.log(rate) - (shape + total) * np.log(rate + counts)
    return np.asarray(drawn, np.float64)


_TINY: Final = 1e-9
_ROUNDS: Final = 4
_SURE: Final = 0.98
_MOVES: Final = 0.1
"""Probability that the same topic's flood begins elsewhere, or that its origin was inferred wrongly."""

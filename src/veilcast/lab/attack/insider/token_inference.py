"""Relinking: tokens that change with the epoch are told to be the same topic's by what stays around them.

A coalition without keys sees, for every token of an epoch, on which of its links it was asked for; how many notes came;
and, by the hash chain, where the flood began (`trilateration`). If the next epoch's tokens are asked for on the same
links, rotation hides nothing. Each pair of an old and a new token is given the log-likelihood ratio of being one topic
against being any two:

- links: whoever asked here asks here again with a probability that is learnt from the pairs held to be the same so far,
  beginning with those whose sets of links overlap most (Jaccard); against how many tokens are asked for there at all;
- notes: both counts are of one rate, or of two, where rates differ between topics by a Gamma law;
- origins: the same one by chance is rare, and another one rarely the same topic, if topics keep theirs.

The best assignment of new tokens to old ones is then the naming. Epochs chain: who loses a topic once has lost it.


Token frequency: tokens hide the names of topics, and not how many ask for them (Naveed and others 2015).

Everybody knows roughly how popular topics are, and insiders without any topic's key count how often each token is asked
for on their links, of how many who might have asked them (`count_requests`). If those read topic j with probability
p(j), the
counts are binomial, and the likeliest naming of tokens by topics is an assignment problem. Where all tokens have the
same chance to be seen it is solved by sorting both (Lacharite and Paterson 2015), so naming by rank is no rule of thumb
but the best that counts alone allow.

What also tells is which tokens the same neighbours ask for: with p(j, j') the share of users who read both, each token
has a likelihood given the names of the others (Cash and others 2015, on keywords), and namings improve by exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import ASKED, AWAY, LinkObservations

_FloatArray = NDArray[np.float64]


def count_requests(graph: Graph, sights: LinkObservations) -> tuple[_FloatArray, _FloatArray]:
    """By epoch, how many neighbours asked for a token; and how many would have if everybody read it.

    A node that has several parents to choose from takes an insider for one with the share of these that are insiders.
    """
    far = origin_distances(graph, sights)
    below = (sights.seen != AWAY) & (far[:, sights.peer] == far[:, sights.observer] + 1)
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    exposure = np.empty(len(far))
    for epoch, distance in enumerate(far):
        nearer = (distance[ends] > 0) & (distance[graph.targets] == distance[ends] - 1)
        parents = np.bincount(ends[nearer], minlength=graph.nodes)
        exposure[epoch] = (1 / parents[sights.peer[below[epoch]]]).sum()
    return _asked(sights).sum(axis=1, dtype=np.float64), exposure


def count_pairs(tokens: Sequence[LinkObservations], nodes: int) -> _FloatArray:
    """Tokens x tokens: how many neighbours asked for both in some epoch, or in two."""
    reads = np.zeros((nodes, len(tokens)))
    for token, sights in enumerate(tokens):
        reads[sights.peer[_asked(sights).any(axis=0)], token] = 1.0
    return reads.T @ reads


def name_by_rank(frequency: _FloatArray, popularity: _FloatArray) -> NDArray[np.int64]:
    """For each token the topic of the same rank."""
    topics = np.empty(frequency.size, np.int64)
    topics[np.argsort(-frequency, kind="stable")] = np.argsort(-popularity, kind="stable")[: frequency.size]
    return topics


def naming_likelihoods(asked: _FloatArray, exposure: _FloatArray, popularity: _FloatArray) -> _FloatArray:
    """Tokens x topics: the log-likelihood that so many, of so many who might ask for this token, read that topic."""
    none = np.maximum(0.0, exposure - asked)
    read, unread = np.log(popularity + _TINY), np.log(1 - popularity + _TINY)
    return np.asarray(np.outer(asked, read) + np.outer(none, unread), np.float64)


def assign_best(likelihood: _FloatArray) -> NDArray[np.int64]:
    """For each row the column that it is given, each to one at most, so that the sum is largest; -1 for those for whom
    none is left."""
    rows, columns = linear_sum_assignment(likelihood, maximize=True)
    topics = np.full(likelihood.shape[0], -1)
    topics[rows] = columns
    return topics


def refine_naming(first: _FloatArray, pairs: _FloatArray, together: _FloatArray) -> NDArray[np.int64]:
    """For each token its topic, by the likelihoods of `first` and of those who ask for two: `pairs` is how often two
    tokens were asked for by the same neighbour, `together` the share of users who read two topics.

    From the best naming without pairs, two tokens at a time exchange their names as long as that is likelier.
    """
    apart = np.log(together / (together.sum() - np.trace(together)) + _TINY)
    both = pairs * (1 - np.eye(len(pairs)))
    topics, better = assign_best(first), True
    while better:
        better = False
        for i in range(len(first)):
            for j in range(i):
                other = topics.copy()
                other[i], other[j] = topics[j], topics[i]
                if _alone(first, both, apart, other, i, j) > _alone(first, both, apart, topics, i, j) + _TINY:
                    topics, better = other, True
    return topics


def _asked(sights: LinkObservations) -> NDArray[np.bool_]:
    """E x links: who asked; where it can be told who did so at once, those alone, for they read."""
    asked: NDArray[np.bool_] = sights.delay == 0 if (sights.delay >= 0).any() else sights.seen == ASKED
    return asked


def _alone(
    first: _FloatArray, both: _FloatArray, apart: _FloatArray, topics: NDArray[np.int64], i: int, j: int
) -> float:
    """What two tokens add to the likelihood of a naming."""
    pair = [i, j]
    alone = first[pair, topics[pair]].sum() + (both[pair] * apart[topics[pair]][:, topics]).sum()
    return float(alone - both[i, j] * apart[topics[i], topics[j]])


_TINY: Final = 1e-9

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def jaccard_similarity(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: what two sets of links have in common, of all that either has; rows of these are tokens."""
    old, new = before.astype(np.float64), after.astype(np.float64)
    common = old @ new.T
    either = old.sum(axis=1)[:, None] + new.sum(axis=1) - common
    return np.asarray(common / np.maximum(1.0, either), np.float64)


def compare_links(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: the log-likelihood ratio of the links that ask for them."""
    usual_before, usual = _share(before), _share(after)
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
    """The same of how many notes came, or how many links ask; a number below 0 is not known, and says nothing."""
    counts = np.concatenate((before, after))
    counts = counts[counts >= 0]
    if counts.size < 2 or (excess := float(counts.var() - counts.mean())) <= 0:
        return np.zeros((before.size, after.size))
    shape, rate = float(counts.mean()) ** 2 / excess, float(counts.mean()) / excess
    one, two = np.maximum(before, 0)[:, None], np.maximum(after, 0)[None, :]
    ratio = _mixed(one + two, shape, rate, 2) - _mixed(one, shape, rate, 1) - _mixed(two, shape, rate, 1)
    return np.where((before >= 0)[:, None] & (after >= 0), ratio, 0.0)


def compare_origins(before: NDArray[np.int32], after: NDArray[np.int32], nodes: int) -> Floats:
    """The same of where floods began, in an overlay of so many; below 0 where it is not known."""
    known = (before >= 0)[:, None] & (after >= 0)
    return np.where(known, np.where(before[:, None] == after, np.log(nodes), np.log(_MOVES)), 0.0)


def _share(asked: Mask) -> Floats:
    """By link, the share of tokens that are asked for there; never none or all."""
    return np.asarray((np.count_nonzero(asked, axis=0) + 0.5) / (len(asked) + 1), np.float64)


def _mixed(total: Floats, shape: float, rate: float, counts: int) -> Floats:
    """The log-probability of counts of one rate, drawn by a Gamma law, with this total; but for their factorials."""
    drawn = gammaln(shape + total) - gammaln(shape) + shape * np.log(rate) - (shape + total) * np.log(rate + counts)
    return np.asarray(drawn, np.float64)


_ROUNDS: Final = 4
_SURE: Final = 0.98
_MOVES: Final = 0.1
"""How likely the same topic's flood begins elsewhere, or its beginning was mistaken."""

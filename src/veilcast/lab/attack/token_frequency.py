"""Token frequency: tokens hide the names of topics, and not how many ask for them (Naveed and others 2015).

Everybody knows roughly how popular topics are, and insiders without any topic's key count how often each token is asked
for on their links, of how many who might have asked them (`tally`). If those read topic j with probability p(j), the
counts are binomial, and the likeliest naming of tokens by topics is an assignment problem. Where all tokens have the
same chance to be seen it is solved by sorting both (Lacharite and Paterson 2015), so naming by rank is no rule of thumb
but the best that counts alone allow.

What also tells is which tokens the same neighbours ask for: with p(j, j') the share of users who read both, each token
has a likelihood given the names of the others (Cash and others 2015, on keywords), and namings improve by exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from veilcast.lab.attack.pools import distances
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.sights import ASKED, AWAY, Sights

Floats = NDArray[np.float64]


def tally(graph: Graph, sights: Sights) -> tuple[Floats, Floats]:
    """By epoch, how many neighbours asked for a token; and how many would have if everybody read it.

    A node that has several parents to choose from takes an insider for one with the share of these that are insiders.
    """
    far = distances(graph, sights)
    below = (sights.seen != AWAY) & (far[:, sights.peer] == far[:, sights.observer] + 1)
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    exposure = np.empty(len(far))
    for epoch, distance in enumerate(far):
        nearer = (distance[ends] > 0) & (distance[graph.targets] == distance[ends] - 1)
        parents = np.bincount(ends[nearer], minlength=graph.nodes)
        exposure[epoch] = (1 / parents[sights.peer[below[epoch]]]).sum()
    return _asked(sights).sum(axis=1, dtype=np.float64), exposure


def paired(tokens: Sequence[Sights], nodes: int) -> Floats:
    """Tokens x tokens: how many neighbours asked for both in some epoch, or in two."""
    reads = np.zeros((nodes, len(tokens)))
    for token, sights in enumerate(tokens):
        reads[sights.peer[_asked(sights).any(axis=0)], token] = 1.0
    return reads.T @ reads


def by_rank(frequency: Floats, popularity: Floats) -> NDArray[np.int64]:
    """For each token the topic of the same rank."""
    topics = np.empty(frequency.size, np.int64)
    topics[np.argsort(-frequency, kind="stable")] = np.argsort(-popularity, kind="stable")[: frequency.size]
    return topics


def likelihoods(asked: Floats, exposure: Floats, popularity: Floats) -> Floats:
    """Tokens x topics: the log-likelihood that so many, of so many who might ask for this token, read that topic."""
    none = np.maximum(0.0, exposure - asked)
    read, unread = np.log(popularity + _TINY), np.log(1 - popularity + _TINY)
    return np.asarray(np.outer(asked, read) + np.outer(none, unread), np.float64)


def matched(likelihood: Floats) -> NDArray[np.int64]:
    """For each row the column that it is given, each to one at most, so that the sum is largest; -1 for those for whom
    none is left."""
    rows, columns = linear_sum_assignment(likelihood, maximize=True)
    topics = np.full(likelihood.shape[0], -1)
    topics[rows] = columns
    return topics


def refined(first: Floats, pairs: Floats, together: Floats) -> NDArray[np.int64]:
    """For each token its topic, by the likelihoods of `first` and of those who ask for two: `pairs` is how often two
    tokens were asked for by the same neighbour, `together` the share of users who read two topics.

    From the best naming without pairs, two tokens at a time exchange their names as long as that is likelier.
    """
    apart = np.log(together / (together.sum() - np.trace(together)) + _TINY)
    both = pairs * (1 - np.eye(len(pairs)))
    topics, better = matched(first), True
    while better:
        better = False
        for i in range(len(first)):
            for j in range(i):
                other = topics.copy()
                other[i], other[j] = topics[j], topics[i]
                if _alone(first, both, apart, other, i, j) > _alone(first, both, apart, topics, i, j) + _TINY:
                    topics, better = other, True
    return topics


def _asked(sights: Sights) -> NDArray[np.bool_]:
    """E x links: who asked; where it can be told who did so at once, those alone, for they read."""
    asked: NDArray[np.bool_] = sights.delay == 0 if (sights.delay >= 0).any() else sights.seen == ASKED
    return asked


def _alone(first: Floats, both: Floats, apart: Floats, topics: NDArray[np.int64], i: int, j: int) -> float:
    """What two tokens add to the likelihood of a naming."""
    pair = [i, j]
    alone = first[pair, topics[pair]].sum() + (both[pair] * apart[topics[pair]][:, topics]).sum()
    return float(alone - both[i, j] * apart[topics[i], topics[j]])


_TINY: Final = 1e-9

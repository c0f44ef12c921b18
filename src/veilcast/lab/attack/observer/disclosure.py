"""Attacks that combine many rounds: statistical disclosure, least squares, intersection and hitting sets.

Statistical disclosure (Danezis 2003): which node does more when the topic is busy than when it is not? Rounds are
windows of time. In some of them a notification of the topic was under way; in all of them nodes did other things too.
The difference of a node's mean activity in busy and in quiet rounds is what the topic makes it do. All else is in both
means and falls away with the square root of the number of rounds. No model of the network and no rate is needed.

Least squares disclosure (LSDA; Perez-Gonzalez and Troncoso 2012): where several topics are busy in one round, a
difference of means blames one topic for another. LSDA explains activity by all topics together. From `busy` (rounds x
topics) and `activity` (rounds x nodes) it finds the non-negative weights with the least squared error of activity =
busy x weights. A constant column stands for activity without a cause. Rounds enter only by two sums of products,
`RoundMoments`, of size topics x nodes. The moments of many rounds are the sum of those of their parts.

Intersection: each round gives a set of candidates, such as the mesh of a publication, or all nodes that sent just
before a notification came up. The target was among them. A target that takes part in every round is in all sets, so
they are intersected until no node is left that was there by chance. With m targets among N nodes this takes about m log
N rounds (O'Connor 2008). If in each round the target was one of m, no node need be in all sets, but the m together meet
every set. They are a hitting set of size m; in time only one is left (Kesdogan and Pimenidis 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from veilcast.errors import ConfigError

Masks = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RoundMoments:
    """Sums of products over some rounds; sufficient for the least squares."""

    within: NDArray[np.float64]
    """Topics x topics; the constant is last."""
    across: NDArray[np.float64]
    """Topics x nodes."""

    def __add__(self, other: RoundMoments) -> RoundMoments:
        return RoundMoments(self.within + other.within, self.across + other.across)


def sum_moments(busy: NDArray[np.float64], activity: NDArray[np.float64]) -> RoundMoments:
    causes = np.column_stack([busy, np.ones(len(busy))])
    return RoundMoments(causes.T @ causes, causes.T @ activity)


def solve_weights(seen: RoundMoments) -> NDArray[np.float64]:
    """Topics x nodes: the part of a node's activity that a notification of the topic causes.

    A topic that was equally busy in all rounds gets 0: there is nothing to compare.
    """
    from scipy.optimize import nnls

    # With within = R'R, |causes w - y|^2 is |R w - R'^-1 across|^2 and a constant. Topics that were never told
    # apart would leave R singular; the small ridge shares their effect among them.
    ridge = 1e-9 * np.trace(seen.within) * np.eye(len(seen.within))
    root = cholesky(seen.within + ridge)
    aims = solve_triangular(root, seen.across, trans="T")
    found = np.column_stack([nnls(root, aim)[0] for aim in aims.T])[:-1]
    # For a topic that never changes, the ridge would leave a trace of constant activity.
    squares, sums, rounds = np.diag(seen.within)[:-1], seen.within[:-1, -1], seen.within[-1, -1]
    found[rounds * squares == sums**2] = 0.0
    return found


def remaining_candidates(rounds: Masks) -> Masks:
    """Rounds x nodes: whether the node was a candidate in every round so far."""
    left: Masks = np.logical_and.accumulate(rounds, axis=0)
    return left


def find_hitting_sets(rounds: Masks, size: int) -> list[tuple[int, ...]]:
    """All sets of at most `size` nodes that meet every round and are minimal, in order."""
    # Small rounds first: they leave the fewest choices.
    order = rounds[np.argsort(np.count_nonzero(rounds, axis=1), kind="stable")]
    found: set[tuple[int, ...]] = set()
    open_ends: list[tuple[int, ...]] = [()]
    for _ in range(size + 1):
        longer: set[tuple[int, ...]] = set()
        for chosen in open_ends:
            hits = order[:, list(chosen)]
            missed = ~hits.any(axis=1)
            if not missed.any():
                # Each member is the only one of the set in some round; otherwise a smaller set would do.
                if hits[np.count_nonzero(hits, axis=1) == 1].any(axis=0).all():
                    found.add(chosen)
            elif len(chosen) < size:
                longer.update(tuple(sorted((*chosen, int(node)))) for node in np.flatnonzero(order[missed.argmax()]))
            if len(longer) > _SETS_MAX:
                raise ConfigError(f"more than {_SETS_MAX} sets are to be tried; look for fewer, or in smaller rounds")
        open_ends = sorted(longer)
    return sorted(found)


def score_hitting_sets(rounds: Masks, size: int) -> NDArray[np.float64]:
    """Its share of the hitting sets, by node."""
    sets = find_hitting_sets(rounds, size)
    counts = np.zeros(rounds.shape[1])
    for each in sets:
        counts[list(each)] += 1
    return counts / max(1, len(sets))


def score_disclosure(busy: NDArray[np.bool_], activity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Its mean activity in busy rounds minus that in quiet rounds, by node; `activity` is rounds x nodes.

    If all rounds are of one kind, all scores are 0: there is nothing to compare.
    """
    if busy.all() or not busy.any():
        return np.zeros(activity.shape[1])
    more: NDArray[np.float64] = activity[busy].mean(axis=0) - activity[~busy].mean(axis=0)
    return more


_SETS_MAX: Final = 100_000
"""Largest number of sets of one size under construction."""

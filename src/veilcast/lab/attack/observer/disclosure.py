"""Statistical disclosure (Danezis 2003): who does more when the topic is busy than when it is not?

Rounds are windows of time. In some of them a note of the topic was about; in all of them nodes did this and that, much
of it for others' sake. The mean of what a node did in the former less the mean of what it did in the latter is what the
topic makes it do: all else is in both, and falls away as the square root of the number of rounds. No model of the
network is needed, and no rate of anything.


Least squares disclosure (LSDA; Perez-Gonzalez and Troncoso 2012): what does each topic make each node do?

Where several topics are busy in one round, a difference of means blames one for what another did. Here what nodes did
is explained by all topics together: of rounds x topics `busy` and rounds x nodes `activity`, the non-negative weights
are sought with the least squared error of activity = busy x weights. A constant column stands for what nodes do anyway.

Rounds enter only by two sums of products, `RoundMoments`, which are as small as topics x nodes; whoever has many rounds
adds
up those of their parts.


Intersection and hitting sets: who could have been it every time, and which few could have been all of it.

Each round gives a set of candidates: the mesh of a publication, or all who sent something just before a note of the
topic came up. Who is sought was among them. One who takes part in every round is in all the sets, so they are
intersected, until nobody is left who was there by chance: with m sought among N that takes a number of rounds of the
order of m log N (O'Connor 2008). If in each round it was one of m, nobody need be in all the sets, but the m together
meet every one of them. They are a hitting set of size m; in time there is only one (Kesdogan and Pimenidis 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from veilcast.errors import ConfigError


@dataclass(frozen=True, eq=False)
class RoundMoments:
    """What is kept of some rounds."""

    within: NDArray[np.float64]
    """Topics x topics, the constant last."""
    across: NDArray[np.float64]
    """Topics x nodes."""

    def __add__(self, other: RoundMoments) -> RoundMoments:
        return RoundMoments(self.within + other.within, self.across + other.across)


def sum_moments(busy: NDArray[np.float64], activity: NDArray[np.float64]) -> RoundMoments:
    causes = np.column_stack([busy, np.ones(len(busy))])
    return RoundMoments(causes.T @ causes, causes.T @ activity)


def solve_weights(seen: RoundMoments) -> NDArray[np.float64]:
    """Topics x nodes: how much of a node's activity comes of a note of the topic.

    Of a topic that was equally busy in all rounds nothing is said: there is nothing to compare.
    """
    # With within = R'R, |causes w - y|^2 is |R w - R'^-1 across|^2 and a constant. Topics that were never told apart
    # would leave R without an inverse; the small ridge shares what they did among them.
    ridge = 1e-9 * np.trace(seen.within) * np.eye(len(seen.within))
    root = cholesky(seen.within + ridge)
    aims = solve_triangular(root, seen.across, trans="T")
    found = np.column_stack([nnls(root, aim)[0] for aim in aims.T])[:-1]
    # Of a topic that never changes, the ridge would leave a trace of what nodes do anyway.
    squares, sums, rounds = np.diag(seen.within)[:-1], seen.within[:-1, -1], seen.within[-1, -1]
    found[rounds * squares == sums**2] = 0.0
    return found


Masks = NDArray[np.bool_]


def remaining_candidates(rounds: Masks) -> Masks:
    """By round and node, whether it was a candidate in all rounds up to this one."""
    left: Masks = np.logical_and.accumulate(rounds, axis=0)
    return left


def find_hitting_sets(rounds: Masks, size: int) -> list[tuple[int, ...]]:
    """The sets of at most `size` nodes of which each round has one, and that need all of theirs, in order."""
    # Small rounds first: they leave the least to choose from.
    order = rounds[np.argsort(np.count_nonzero(rounds, axis=1), kind="stable")]
    found: set[tuple[int, ...]] = set()
    open_ends: list[tuple[int, ...]] = [()]
    for _ in range(size + 1):
        longer: set[tuple[int, ...]] = set()
        for chosen in open_ends:
            hits = order[:, list(chosen)]
            missed = ~hits.any(axis=1)
            if not missed.any():
                # Everybody in it is the only one of it in some round; else fewer would do.
                if hits[np.count_nonzero(hits, axis=1) == 1].any(axis=0).all():
                    found.add(chosen)
            elif len(chosen) < size:
                longer.update(tuple(sorted((*chosen, int(node)))) for node in np.flatnonzero(order[missed.argmax()]))
            if len(longer) > _SETS_MAX:
                raise ConfigError(f"more than {_SETS_MAX} sets are to be tried; look for fewer, or in smaller rounds")
        open_ends = sorted(longer)
    return sorted(found)


def score_hitting_sets(rounds: Masks, size: int) -> NDArray[np.float64]:
    """By node, the share of the hitting sets that it is in."""
    sets = find_hitting_sets(rounds, size)
    counts = np.zeros(rounds.shape[1])
    for each in sets:
        counts[list(each)] += 1
    return counts / max(1, len(sets))


_SETS_MAX: Final = 100_000
"""Sets of one size, while they are being completed."""


def score_disclosure(busy: NDArray[np.bool_], activity: NDArray[np.float64]) -> NDArray[np.float64]:
    """By node, what it did more in rounds that were busy; `activity` has a row for each round, a column for each node.

    Where all rounds are of one kind there is nothing to compare, and nothing is said.
    """
    if busy.all() or not busy.any():
        return np.zeros(activity.shape[1])
    more: NDArray[np.float64] = activity[busy].mean(axis=0) - activity[~busy].mean(axis=0)
    return more

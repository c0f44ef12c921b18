"""Least squares disclosure (LSDA; Perez-Gonzalez and Troncoso 2012): what does each topic make each node do?

Where several topics are busy in one round, a difference of means blames one for what another did. Here what nodes did
is explained by all topics together: of rounds x topics `busy` and rounds x nodes `activity`, the non-negative weights
are sought with the least squared error of activity = busy x weights. A constant column stands for what nodes do anyway.

Rounds enter only by two sums of products, `Moments`, which are as small as topics x nodes; whoever has many rounds adds
up those of their parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls


@dataclass(frozen=True, eq=False)
class Moments:
    """What is kept of some rounds."""

    within: NDArray[np.float64]
    """Topics x topics, the constant last."""
    across: NDArray[np.float64]
    """Topics x nodes."""

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.within + other.within, self.across + other.across)


def moments(busy: NDArray[np.float64], activity: NDArray[np.float64]) -> Moments:
    causes = np.column_stack([busy, np.ones(len(busy))])
    return Moments(causes.T @ causes, causes.T @ activity)


def weights(seen: Moments) -> NDArray[np.float64]:
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

"""Time to disclosure: after how many rounds has an attacker found its target for good?

A target is disclosed when no other node is as suspect, for some rounds in a row; the time is the first of them. Over
many runs the share without disclosure is a falling curve. Its area says more than a mean would: runs that end before a
disclosure have no time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def rounds_to_disclosure(scores: NDArray[np.float64], target: int, *, stays: int = 5) -> int | None:
    """The number of rounds, from 1, until the target is first and stays so; `scores` has a row for each round. None if
    it never is."""
    in_a_row = 0
    for number, row in enumerate(scores, start=1):
        in_a_row = in_a_row + 1 if is_first(row, target) else 0
        if in_a_row == stays:
            return number - stays + 1
    return None


def is_first(scores: NDArray[np.float64], target: int) -> bool:
    """Whether no other node is as suspect."""
    return bool(scores[target] > np.delete(scores, target).max())


def survival_curve(times: Sequence[int | None], rounds: int) -> NDArray[np.float64]:
    """After 0, 1, ... `rounds` rounds, the share of runs in which the target is not disclosed."""
    known = np.array([rounds + 1 if time is None else time for time in times])
    return np.array([np.mean(known > number) for number in range(rounds + 1)])

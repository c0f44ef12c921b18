"""The game between a foiler and an attacker (P3, VII): each chooses without knowing the other's choice.

A matrix has a row for each generator of fakes and a column for each attacker, and holds how often that attacker is
right. The foiler wants it small, the attacker large: a zero-sum game. Each side may draw its choice at random. Then
there is a value that the foiler can stay below and the attacker above, whatever the other does (von Neumann 1928). Two
linear programmes find it, one for each side; that both agree on the value proves it.

A foiler also pays for fakes and wants wrong guesses to be far off. Its options are the frontier: choices such that no
other is at least as good in everything and better in something.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from veilcast.errors import ConfigError

Numbers: TypeAlias = NDArray[np.float64]


class GameSolution(NamedTuple):
    value: float
    """How often the attacker is right if both play optimally."""
    foiler: Numbers
    """Probability of each row."""
    attacker: Numbers
    """Probability of each column."""


def solve_game(matrix: Numbers) -> GameSolution:
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ConfigError("a game is a matrix of finite numbers, with a row and a column at least")
    foiler, above = _least(matrix)
    attacker, below = _least(-matrix.T)
    if abs(above + below) > _SAME * max(1.0, float(np.abs(matrix).max())):
        raise ConfigError("the two sides of the game come to different values: the matrix is too badly scaled")
    return GameSolution(above, foiler, attacker)


def find_frontier(costs: Numbers) -> NDArray[np.bool_]:
    """Choices that no other one beats; `costs` is [choices, measures], smaller is better."""
    if costs.ndim != 2 or not np.isfinite(costs).all():
        raise ConfigError("choices have finite measures")
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    better = (costs[:, None, :] < costs[None, :, :]).any(axis=2)
    return np.asarray(~(no_worse & better).any(axis=0), np.bool_)


def _least(matrix: Numbers) -> tuple[Numbers, float]:
    """The lottery over rows whose worst column is smallest, and that column's value."""
    rows, columns = matrix.shape
    found = linprog(
        c=np.append(np.zeros(rows), 1.0),
        A_ub=np.column_stack([matrix.T, -np.ones(columns)]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=np.ones(1),
        bounds=[(0, None)] * rows + [(None, None)],
    )
    if not found.success:
        raise ConfigError(f"the game could not be solved: {found.message}")
    lot = np.maximum(found.x[:rows], 0)
    return lot / lot.sum(), float(found.x[rows])


_SAME: Final = 1e-7

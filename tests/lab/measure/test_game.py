"""The game of foiler and attacker: known games, and the two sides prove one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from veilcast.errors import ConfigError
from veilcast.lab.measure.game import find_frontier, solve_game


def test_matching_pennies_is_played_by_fair_coins() -> None:
    value, foiler, attacker = solve_game(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert value == pytest.approx(0.5)
    assert foiler == pytest.approx([0.5, 0.5])
    assert attacker == pytest.approx([0.5, 0.5])


def test_a_generator_that_is_best_against_all_is_always_chosen() -> None:
    value, foiler, _ = solve_game(np.array([[0.9, 0.3, 0.25], [0.25, 0.26, 0.25], [0.25, 0.4, 1.0]]))
    assert value == pytest.approx(0.26)
    assert foiler == pytest.approx([0, 1, 0], abs=1e-9)


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(0, 1, width=32)))
def test_neither_side_can_do_better_than_the_value(matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    value, foiler, attacker = solve_game(matrix)
    assert foiler.sum() == pytest.approx(1)
    assert attacker.sum() == pytest.approx(1)
    assert (foiler @ matrix).max() <= value + 1e-6
    assert (matrix @ attacker).min() >= value - 1e-6


def test_the_frontier_is_what_no_other_choice_beats() -> None:
    costs = np.array([[1.0, 9.0], [2.0, 2.0], [3.0, 2.0], [9.0, 1.0], [2.0, 2.0]])
    assert find_frontier(costs).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("wrong", [np.zeros((0, 2)), np.zeros(3), np.array([[np.nan]])])
def test_a_malformed_game_is_refused(wrong: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    with pytest.raises(ConfigError):
        solve_game(wrong)

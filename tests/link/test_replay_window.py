"""A replay window takes each number once, and none that lies behind the window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.link.replay_window import WINDOW_SIZE, ReplayWindow


@given(st.lists(st.integers(1, 3 * WINDOW_SIZE) | st.integers(1, 20), max_size=60))
def test_a_window_takes_each_number_once_and_none_behind_it(numbers: list[int]) -> None:
    window, newest, taken = ReplayWindow(), 0, set[int]()
    for number in numbers:
        newest = max(newest, number)
        assert window.take(number) is (number not in taken and newest - number < WINDOW_SIZE)
        taken.add(number)


def test_the_largest_numbers_move_the_window_and_cost_no_memory() -> None:
    window = ReplayWindow()
    assert window.take((1 << 63) - 1)
    assert len(window._ring) == WINDOW_SIZE // 8 + 1
    assert not window.take(1)
    assert window.take((1 << 63) - WINDOW_SIZE)
    assert not window.take((1 << 63) - WINDOW_SIZE - 1)


@given(st.integers(0, 2 * WINDOW_SIZE), st.integers(1, 20))
def test_a_window_that_has_come_round_knows_every_number_in_it(first: int, step: int) -> None:
    window, last = ReplayWindow(), first + 2 * WINDOW_SIZE
    assert all(window.take(number) for number in range(first, last + 1, step))
    newest = last - 2 * WINDOW_SIZE % step
    fresh = [number for number in range(newest - WINDOW_SIZE - 20, newest + 1) if window.take(number)]
    assert fresh == [number for number in range(newest - WINDOW_SIZE + 1, newest + 1) if (number - first) % step]

"""How long is waited follows how long it took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.tree.pace import Pace


def test_who_knows_nothing_waits_long_and_who_gets_quick_answers_does_not() -> None:
    pace = Pace(10, 100)
    assert pace.us == 100
    pace.note(1)
    assert pace.us == 10
    for _ in range(4):
        pace.note(80)
    assert pace.us == 100


def test_what_was_slow_once_is_soon_forgotten() -> None:
    pace = Pace(10_000, 1_000_000)
    for took in [1_000] * 10 + [500_000] + [1_000] * 25:
        pace.note(took)
    assert pace.us < 50_000


@given(st.integers(1, 10**6), st.integers(2, 30))
def test_what_always_takes_as_long_is_waited_for_twice_as_long_at_least(took: int, times: int) -> None:
    pace = Pace(0, 10**9)
    for _ in range(times):
        pace.note(took)
        assert pace.us >= 2 * took


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_it_stays_within_its_bounds(took: list[int]) -> None:
    pace = Pace(1_000, 1_000_000)
    for each in took:
        pace.note(each)
        assert 1_000 <= pace.us <= 1_000_000

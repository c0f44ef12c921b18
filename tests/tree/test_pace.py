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
    pace.note(5)
    assert pace.us == 20
    pace.note(80)
    assert pace.us == 100


def test_what_was_slow_once_is_forgotten() -> None:
    pace = Pace(10, 1_000_000)
    pace.note(10_000)
    for _ in range(200):
        pace.note(1)
    assert pace.us < 200


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_it_stays_within_its_bounds_and_covers_the_last(took: list[int]) -> None:
    pace = Pace(1_000, 1_000_000)
    for each in took:
        pace.note(each)
        assert min(each, 1_000_000) <= pace.us
    assert 1_000 <= pace.us <= 1_000_000

"""Alarms: each key wakes once, when it was last set for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.timers import Timers, earliest

STEPS = st.lists(st.tuples(st.sampled_from(["set", "drop", "due"]), st.integers(0, 5), st.integers(0, 50)), max_size=60)


@given(STEPS)
def test_alarms_are_a_sorted_table_of_keys_and_moments(steps: list[tuple[str, int, int]]) -> None:
    alarms: Timers[int] = Timers()
    table: dict[int, int] = {}
    for step, key, when in steps:
        if step == "set":
            alarms.set(key, when)
            table[key] = when
        elif step == "drop":
            alarms.cancel(key)
            table.pop(key, None)
        else:
            woken = alarms.pop_due(when)
            assert sorted(woken) == sorted(key for key, moment in table.items() if moment <= when)
            assert [table[key] for key in woken] == sorted(table[key] for key in woken)
            table = {key: moment for key, moment in table.items() if moment > when}
        assert alarms.next_us() == min(table.values(), default=None)
        assert len(alarms) == len(table)
        assert all(key in alarms for key in table)


def test_an_alarm_that_is_moved_for_ever_leaves_little_behind() -> None:
    alarms: Timers[str] = Timers()
    for when in range(10_000):
        alarms.set("one", when)
    assert len(alarms._heap) <= 66
    assert alarms.pop_due(9_998) == []
    assert alarms.pop_due(9_999) == ["one"]


def test_of_those_that_are_due_the_first_so_many_can_be_taken_and_the_others_keep_their_places() -> None:
    alarms: Timers[str] = Timers()
    for key, when in (("c", 3), ("a", 1), ("b", 2), ("later", 9)):
        alarms.set(key, when)
    assert alarms.pop_due(5, 0) == []
    assert alarms.pop_due(5, 2) == ["a", "b"]
    alarms.set("d", 5)
    assert alarms.pop_due(5, 7) == ["c", "d"]
    assert list(alarms) == ["later"]


def test_the_earliest_of_moments_that_may_not_be() -> None:
    assert earliest(None, 3, None, 2) == 2
    assert earliest(None) is None

"""Timers: each key is due once, at the deadline that was set last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.timers import Timers, TimerTable, earliest

ACTIONS = st.sampled_from(["set", "set_if_earlier", "cancel", "pop_due"])
STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 5), st.integers(0, 50)), max_size=60)


@given(STEPS)
def test_timers_are_a_sorted_table_of_keys_and_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    table: dict[int, int] = {}
    for action, key, when in steps:
        if action == "set":
            timers.set(key, when)
            table[key] = when
        elif action == "set_if_earlier":
            timers.set_if_earlier(key, when)
            table[key] = min(table.get(key, when), when)
        elif action == "cancel":
            timers.cancel(key)
            table.pop(key, None)
        else:
            due = timers.pop_due(when)
            assert sorted(due) == sorted(key for key, moment in table.items() if moment <= when)
            assert [table[key] for key in due] == sorted(table[key] for key in due)
            table = {key: moment for key, moment in table.items() if moment > when}
        assert timers.next_us() == min(table.values(), default=None)
        assert len(timers) == len(table)
        assert all(key in timers for key in table)


def test_of_equal_deadlines_the_timer_that_was_set_first_comes_first() -> None:
    timers: Timers[str] = Timers()
    for key in ("c", "a", "b"):
        timers.set(key, 7)
    timers.set_if_earlier("c", 7)
    assert timers.pop_due(7) == ["c", "a", "b"]


def test_a_timer_that_is_moved_for_ever_leaves_little_behind() -> None:
    timers: Timers[str] = Timers()
    for when in range(10_000):
        timers.set("one", when)
    assert len(timers._heap) <= 66
    assert timers.pop_due(9_998) == []
    assert timers.pop_due(9_999) == ["one"]


def test_the_first_due_timers_can_be_taken_and_the_others_keep_their_order() -> None:
    timers: Timers[str] = Timers()
    for key, when in (("c", 3), ("a", 1), ("b", 2), ("later", 9)):
        timers.set(key, when)
    assert timers.pop_due(5, 0) == []
    assert timers.pop_due(5, 2) == ["a", "b"]
    timers.set("d", 5)
    assert timers.pop_due(5, 7) == ["c", "d"]
    assert list(timers) == ["later"]


class Part:
    def __init__(self, name: str, deadline_us: int | None, calls: list[tuple[str, int]]) -> None:
        self._name, self._deadline_us, self._calls = name, deadline_us, calls

    def handle(self, now: int) -> None:
        self._calls.append((self._name, now))

    def next_us(self) -> int | None:
        return self._deadline_us


def test_a_timer_table_calls_its_parts_in_order_and_names_their_deadlines() -> None:
    calls: list[tuple[str, int]] = []
    table = TimerTable({"streams": Part("streams", 9, calls), "inbox": Part("inbox", 4, calls)})
    assert table.next_us() == 4
    assert table.deadlines() == {"streams": 9, "inbox": 4}
    table.handle(5)
    assert calls == [("streams", 5), ("inbox", 5)]
    assert TimerTable({"idle": Part("idle", None, calls)}).next_us() is None


def test_the_earliest_moment_of_several_that_may_be_missing() -> None:
    assert earliest(None, 3, None, 2) == 2
    assert earliest(None) is None

"""The event queue has the order of a heap."""

from __future__ import annotations

from heapq import heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from veilcast.sim.engine import EventQueue, QueueEntry

DELAYS = st.lists(st.lists(st.integers(0, 9_000), max_size=3), max_size=60)


def entry(time: int, sequence: int) -> QueueEntry:
    return (time, sequence, None, None, None)


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=20), DELAYS)
def test_it_gives_the_order_of_a_heap_also_for_what_is_added_meanwhile(
    first: list[int], later: list[list[int]]
) -> None:
    agenda, heap, pushed = EventQueue(), list[QueueEntry](), 0
    for time in first:
        agenda.push(entry(time, pushed))
        heappush(heap, entry(time, pushed))
        pushed += 1
    plan = iter(later)
    while heap:
        for taken in agenda.open():
            assert taken == heappop(heap)
            for delay in next(plan, []):
                new = entry(taken[0] + delay, pushed)
                agenda.push(new)
                heappush(heap, new)
                pushed += 1
        agenda.close(taken[0], taken[1])
    assert list(agenda) == []


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=30), st.integers(0, 100))
def test_closing_puts_back_exactly_what_was_not_taken(times: list[int], stop: int) -> None:
    agenda = EventQueue()
    entries = [entry(time, number) for number, time in enumerate(times)]
    for each in entries:
        agenda.push(each)
    bucket = agenda.open()
    taken = bucket[: stop % len(bucket) + 1]
    agenda.close(taken[-1][0], taken[-1][1])
    assert sorted([*taken, *agenda]) == sorted(entries)
    agenda.push(entry(0, 1_000))
    assert agenda.open()[0][0] == 0


def test_an_entry_is_removed_if_it_is_there() -> None:
    agenda = EventQueue()
    agenda.push(entry(5, 1))
    agenda.push(entry(5, 2))
    agenda.remove(entry(5, 1))
    agenda.remove(entry(5, 1))
    agenda.remove(entry(10**9, 1))
    assert list(agenda) == [entry(5, 2)]

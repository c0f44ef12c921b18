"""The trace tells any two runs apart, and does not depend on when it is looked at."""

from __future__ import annotations

import pytest

from veilcast.machine import Address, Connect, Disconnect, Event
from veilcast.sim.run_digest import CHUNK, RunDigest


def test_records_do_not_run_together() -> None:
    one, other = RunDigest(), RunDigest()
    one.add_note(1, 2, b"ab")
    one.add_note(1, 2, b"c")
    other.add_note(1, 2, b"a")
    other.add_note(1, 2, b"bc")
    assert one.digest() != other.digest()


def test_looking_at_the_digest_changes_nothing() -> None:
    one, other = RunDigest(), RunDigest()
    for number in range(CHUNK):
        one.add_note(number, 0, b"x")
        other.add_note(number, 0, b"x")
        if number % 1_000 == 0:
            one.digest()
    assert one.digest() == other.digest()


def test_events_of_different_types_with_equal_fields_differ() -> None:
    one, other = RunDigest(), RunDigest()
    one.add_event(1, 2, Connect(Address("a")))
    other.add_event(1, 2, Disconnect(Address("a")))
    assert one.digest() != other.digest()


class Odd(Event, frozen=True):
    content: object


def test_what_has_no_one_form_is_refused_and_sets_are_sorted() -> None:
    one, other, odd = RunDigest(), RunDigest(), RunDigest()
    one.add_event(1, 2, Odd(frozenset(["a", "b", "c"])))
    other.add_event(1, 2, Odd(frozenset(["c", "b", "a"])))
    assert one.digest() == other.digest()
    odd.add_event(1, 2, Odd(object()))
    with pytest.raises(TypeError):
        odd.digest()


def test_full_chunks_are_not_kept() -> None:
    trace = RunDigest()
    for number in range(CHUNK):
        trace.add_note(number, 0, b"x")
        assert len(trace.records) < CHUNK

"""Delivery once, in order, and again until acknowledged; within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.link.replay_window import ReplayWindow
from veilcast.machine import Note, Publication
from veilcast.mesh.ordered_inbox import OrderedInbox

STREAM = ("topic", b"stream")


def make(unread_max: int = 100, streams_max: int = 10) -> OrderedInbox:
    return OrderedInbox(unread_max=unread_max, streams_max=streams_max, again_us=1_000, gap_us=50)


def put(inbox: OrderedInbox, number: int, now: int = 0, stream: tuple[str, bytes] = STREAM, readers: int = 1) -> None:
    inbox.put(stream, number, Note(stream[1] + b"%d" % number, Publication(())), list(range(readers)), now)


def taken(inbox: OrderedInbox) -> list[bytes]:
    found = []
    while (event := inbox.next_delivery()) is not None:
        found.append(event.note.id)
    return found


def names(*numbers: int) -> list[bytes]:
    return [b"stream%d" % number for number in numbers]


@given(st.permutations(range(2, 12)))
def test_delivery_is_in_the_publishers_order_for_any_order_of_arrival(arrival: list[int]) -> None:
    inbox = make()
    for number in [1, *arrival]:
        put(inbox, number)
    assert taken(inbox) == names(*range(1, 12))


def test_a_gap_is_skipped_after_its_time_and_a_late_notification_is_delivered_late() -> None:
    inbox = make()
    for number in (1, 3, 4):
        put(inbox, number)
    inbox.beat(49)
    assert taken(inbox) == names(1)
    inbox.beat(50)
    assert taken(inbox) == names(3, 4)
    put(inbox, 2)
    assert taken(inbox) == names(2)


def test_a_repeated_number_is_ignored() -> None:
    inbox = make()
    for number in (1, 2, 4, 4, 1, 2):
        put(inbox, number)
    inbox.beat(50)
    put(inbox, 3)
    put(inbox, 3)
    assert taken(inbox) == names(1, 2, 4, 3)


def test_the_planted_bug_of_an_inbox_without_a_window_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayWindow, "take", lambda self, number: True)
    with pytest.raises(AssertionError):
        test_a_repeated_number_is_ignored()


def test_streams_do_not_wait_for_one_another() -> None:
    inbox = make()
    put(inbox, 5)
    put(inbox, 1, stream=("topic", b"other"))
    assert taken(inbox) == [b"stream5", b"other1"]


def test_a_notification_without_a_reader_only_keeps_its_number() -> None:
    inbox = make()
    put(inbox, 1)
    put(inbox, 3)
    put(inbox, 2, readers=0)
    assert taken(inbox) == names(1, 3)
    assert inbox.size() == 2


def test_an_unacknowledged_notification_is_delivered_again() -> None:
    inbox = make()
    put(inbox, 1)
    put(inbox, 2)
    taken(inbox)
    inbox.acknowledge(b"stream1")
    inbox.beat(1_000)
    assert taken(inbox) == names(2)
    inbox.beat(1_001)
    assert taken(inbox) == []


def test_the_bounds_are_reached_and_held() -> None:
    inbox = make(unread_max=5, streams_max=3)
    put(inbox, 1)
    for number in range(3, 20):
        put(inbox, number)
        assert inbox.size() <= 10
    for number in range(20):
        put(inbox, 1, stream=("topic", b"s%d" % number))
        put(inbox, 3, stream=("topic", b"s%d" % number))
        assert inbox.size() <= 5 + 3
    assert len(taken(inbox)) <= 5


def test_streams_with_gaps_share_one_bound_and_the_largest_gives_way() -> None:
    inbox = make(unread_max=10, streams_max=10)
    put(inbox, 1, stream=("topic", b"honest"))
    put(inbox, 3, stream=("topic", b"honest"))
    for number in range(1, 9):
        for stream in (b"a", b"b", b"c"):
            put(inbox, 2 * number, stream=("topic", stream))
            assert inbox.size() <= 2 * 10
    taken(inbox)
    put(inbox, 2, stream=("topic", b"honest"))
    assert taken(inbox) == [b"honest2", b"honest3"]

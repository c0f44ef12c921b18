"""The inbox delivers each notification once for each subscription until it is acknowledged, and gives no receipt
before.
"""

from __future__ import annotations

from veilcast.core.inbox import Inbox
from veilcast.machine import Delivered, Note, Publication


def note(number: int) -> Note:
    return Note(number.to_bytes(16, "big"), Publication(()))


def inbox(unread_max: int = 10, seen_max: int = 10) -> Inbox:
    return Inbox(unread_max=unread_max, seen_max=seen_max, again_us=100)


def delivered(box: Inbox) -> list[Delivered]:
    out = []
    while (one := box.next_delivery()) is not None:
        out.append(one)
    return out


def test_a_notification_is_delivered_once_and_its_receipt_is_given_when_it_is_acknowledged() -> None:
    box = inbox()
    assert not box.put([1, 2], note(5), (b"name", b"ticket"), 0)
    assert delivered(box) == [Delivered(1, note(5)), Delivered(2, note(5))]
    assert not box.put([1, 2], note(5), (b"name", b"again"), 1)
    assert delivered(box) == []
    assert box.acknowledge(note(5).id) == [(b"name", b"again")]
    assert box.put([1, 2], note(5), (b"name", b"third"), 2), "the receipt of a repeat is given at once"
    assert delivered(box) == []


def test_a_repeat_for_another_subscription_is_delivered_to_that_one() -> None:
    box = inbox()
    box.put([1], note(5), (b"a", b"t"), 0)
    box.acknowledge(note(5).id)
    assert not box.put([2], note(5), (b"b", b"t"), 0)
    assert delivered(box) == [Delivered(2, note(5))]


def test_a_notification_for_no_subscription_needs_no_acknowledgement() -> None:
    assert inbox().put([], note(5), (b"a", b"t"), 0)


def test_an_unacknowledged_notification_is_delivered_again() -> None:
    box = inbox()
    box.put([1], note(5), (b"a", b"t"), 0)
    delivered(box)
    assert box.next_us() == 100
    box.handle(99)
    assert delivered(box) == []
    box.handle(100)
    assert delivered(box) == [Delivered(1, note(5))]
    assert box.next_us() == 200


def test_a_full_inbox_accepts_nothing_and_gives_no_receipt() -> None:
    box = inbox(unread_max=2)
    for number in range(3):
        assert not box.put([1], note(number), (b"a", b"t"), 0)
    assert len(box) == 2
    assert [each.note for each in delivered(box)] == [note(0), note(1)]
    box.acknowledge(note(0).id)
    assert not box.put([1], note(2), (b"a", b"t"), 0)
    assert [each.note for each in delivered(box)] == [note(2)]


def test_the_inbox_remembers_only_the_last_acknowledged_notifications() -> None:
    box = inbox(seen_max=2)
    for number in range(3):
        box.put([1], note(number), (b"a", b"t"), 0)
        box.acknowledge(note(number).id)
    assert box.seen_count == 2
    assert box.put([1], note(2), (b"a", b"t"), 0)
    assert not box.put([1], note(0), (b"a", b"t"), 0)


def test_an_ended_subscription_gets_nothing_and_its_receipts_are_given() -> None:
    box = inbox()
    box.put([1], note(1), (b"a", b"t"), 0)
    box.put([1, 2], note(2), (b"a", b"u"), 0)
    assert box.end_subscription(1) == [(b"a", b"t")]
    assert delivered(box) == [Delivered(2, note(2))]

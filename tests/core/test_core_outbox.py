"""The outbox: a publication leaves once it is on the disk, and is reported while it is overdue."""

from __future__ import annotations

from random import Random

from veilcast.core.outbox import Outbox, Sendings
from veilcast.machine import Overdue, Publication, Record, Settled

NEWS = Publication((("topic", "news"),), b"hello")
OTHER = Publication((("topic", "chat"),), b"hi")


def test_records_are_numbered_after_those_of_earlier_lives_and_after_the_reserved_one() -> None:
    first = Outbox(Random(1).randbytes, {}, 8, reserved=1)
    assert first.keep([first.draft("news", None, NEWS)]) == 2
    event = first.next_event()
    assert isinstance(event, Record)
    second = Outbox(Random(2).randbytes, {1: b"another's", 2: event.data}, 8, reserved=1)
    assert [record for record, _ in second.unsettled()] == [2]
    assert second.keep([second.draft("news", None, NEWS)]) == 3


def test_a_publication_leaves_once_and_is_settled_when_all_its_topics_are() -> None:
    outbox = Outbox(Random(1).randbytes, {}, 8)
    drafts = [outbox.draft(topic, None, NEWS) for topic in ("news", "chat")]
    record = outbox.keep(drafts)
    assert list(outbox.unsettled()) == [], "it is not on the disk yet"
    assert outbox.stored(record) == tuple(drafts)
    assert outbox.stored(record) == ()
    assert [pending for _, pending in outbox.unsettled()] == drafts
    outbox.settle(record, drafts[0])
    assert len(outbox) == 1
    outbox.settle(record, drafts[1])
    outbox.settle(record, drafts[1])
    assert len(outbox) == 0
    events = [outbox.next_event() for _ in range(3)]
    assert isinstance(events[0], Record)
    assert events[1:] == [Settled(record), None]


def test_a_record_is_overdue_again_and_again_until_its_last_sending_is_finished() -> None:
    sendings: Sendings[str] = Sendings(wait_us=10)
    sendings.add(1, "first", NEWS, 0)
    sendings.add(1, "second", NEWS, 5)
    sendings.add(2, "third", OTHER, 5)
    assert list(sendings) == ["first", "second", "third"]
    assert sendings.next_us() == 10
    sendings.handle(10)
    assert [sendings.next_event(), sendings.next_event()] == [Overdue(1, NEWS), None]
    assert not sendings.finish(1, "first")
    assert not sendings.finish(1, "first")
    assert sendings.finish(1, "second")
    assert sendings.next_us() == 15
    assert sendings.withdraw(2) == ["third"]
    assert sendings.withdraw(2) == []
    assert (sendings.next_us(), len(sendings)) == (None, 0)
    assert sendings._publications == {}


def test_a_record_whose_timer_was_stopped_keeps_its_sendings_and_is_not_reported() -> None:
    sendings: Sendings[str] = Sendings(wait_us=10)
    sendings.add(1, "held", NEWS, 0)
    sendings.stop_timer(1)
    sendings.handle(100)
    assert sendings.next_event() is None
    assert list(sendings.of(1)) == ["held"]
    assert sendings.finish(1, "held")

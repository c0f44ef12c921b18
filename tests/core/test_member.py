"""The base of members: publications are checked and kept, refusals counted, and faults contained."""

from __future__ import annotations

from random import Random

import pytest

from veilcast.core.member import OutboxMember, first_event
from veilcast.core.outbox import Outbox, PendingPublication
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Address, Frame, Publication, Record, Settled
from veilcast.topics import Conjunction, Label, Range, Schema

NEWS = Publication((("topic", "news"),), b"hello")


class SmallMember(OutboxMember):
    """Sends nothing; notes what it was asked to send and to subscribe to."""

    def __init__(self) -> None:
        super().__init__()
        self._outbox = Outbox(Random(1).randbytes, {}, 2)
        self.sent: list[tuple[int, str]] = []
        self.subscriptions: dict[int, str] = {}

    def _schema_of(self, topic: str, now: int) -> Schema:
        if topic not in ("news", "chat"):
            raise LocalError(f"no keys for {topic}")
        return Schema()

    def _check_sendable(self, pending: PendingPublication, now: int) -> None:
        if pending.topic == "chat":
            raise LocalError("not a publisher of chat")

    def _send(self, record: int, pending: PendingPublication, now: int) -> None:
        self.sent.append((record, pending.topic))

    def _add_subscription(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self.subscriptions[number] = topic


def test_a_publication_is_sent_when_its_record_is_stored() -> None:
    member = SmallMember()
    record = member.publish(NEWS, 0)
    assert member.sent == []
    member.stored(record, 1)
    assert member.sent == [(record, "news")]
    assert member.version == 2


def test_a_publication_that_cannot_be_sent_on_one_topic_is_kept_for_none() -> None:
    member = SmallMember()
    with pytest.raises(LocalError, match="not a publisher of chat"):
        member.publish(Publication((("topic", "news"), ("topic", "chat")), b""), 0)
    with pytest.raises(LocalError, match="no keys for weather"):
        member.publish(Publication((("topic", "weather"),), b""), 0)
    assert (len(member._outbox), member.version) == (0, 0)


def test_subscriptions_are_numbered_and_a_refused_one_takes_no_number() -> None:
    member = SmallMember()
    assert member.subscribe(Label("news"), 0) == 1
    with pytest.raises(LocalError):
        member.subscribe(Range("price", 1, 2), 0)
    assert member.subscribe(Label("chat"), 0) == 2
    assert member.subscriptions == {1: "news", 2: "chat"}


def test_a_remote_error_is_counted_as_a_refusal_and_any_other_exception_as_a_fault() -> None:
    member = SmallMember()

    def forged() -> None:
        raise ForgedError("no")

    def broken() -> None:
        raise ValueError("a slip")

    member._receive_with(forged)
    member._receive_with(broken)
    assert member.refused == {"ForgedError": 1}
    assert member.faults.count == 1
    member._refuse(ValueError("a slip"))
    assert member.refused == {"ForgedError": 1, "ValueError": 1}
    assert member.faults.count == 2


def test_frames_are_handed_over_up_to_the_limit() -> None:
    member = SmallMember()
    member._frames += [Frame(Address("a"), bytes((number,))) for number in range(3)]
    assert [frame.data for frame in member.frames_to_send(0, 2)] == [b"\0", b"\1"]
    assert [frame.data for frame in member.frames_to_send(0, 2)] == [b"\2"]


def test_the_first_source_that_has_an_event_gives_it() -> None:
    assert first_event(lambda: None, lambda: Settled(1), lambda: Record(2, b"")) == Settled(1)
    assert first_event(lambda: None) is None

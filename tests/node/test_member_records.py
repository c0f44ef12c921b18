"""The records of a member's node: nothing is confirmed before it is on the disk, and the next run continues the last
one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, LocalError, StorageError, TamperedError
from veilcast.machine import (
    Address,
    Connect,
    Delivered,
    Event,
    Frame,
    Interest,
    Note,
    Overdue,
    Publication,
    Record,
    Settled,
    Waiting,
)
from veilcast.node.member_records import MemberRecords, decode_interest
from veilcast.node.store import NodeStore
from veilcast.topics import All, Label, Range

NEWS, WEATHER = Label("news"), All(Label("weather"), Range("temp", 20, None, low_open=True))
X = Publication((NEWS.pair,), b"x")


class RecordingMember:
    """A machine that records its calls, and emits the events of the test."""

    def __init__(self, first: int = 2) -> None:
        self.events: list[Event] = []
        self.told: list[tuple[str, object]] = []
        self.refuses: tuple[Interest, ...] = ()
        self._record, self._subscription = first - 1, 0

    def publish(self, publication: Publication, now: int) -> int:
        self._record += 1
        self.events.append(Record(self._record, publication.body))
        return self._record

    def withdraw(self, record: int, now: int) -> None:
        self.events.append(Settled(record))

    def subscribe(self, interest: Interest, now: int) -> int:
        if any(known.constraints == interest.constraints for known in self.refuses):  # type: ignore[attr-defined]
            raise AuthorityError("no grant for it")
        self._subscription += 1
        self.told.append(("subscribe", self._subscription))
        return self._subscription

    def unsubscribe(self, number: int, now: int) -> None:
        self.told.append(("unsubscribe", number))

    def acknowledge(self, note: bytes, now: int) -> None:
        self.told.append(("acknowledge", note))

    def stored(self, record: int, now: int) -> None:
        self.told.append(("stored", record))

    def next_event(self) -> Event | None:
        return self.events.pop(0) if self.events else None

    def receive(self, data: bytes, source: Address, now: int) -> None: ...

    def handle_timer(self, now: int) -> None: ...

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return []

    def peer_up(self, peer: Address, now: int) -> None: ...

    def peer_lost(self, peer: Address, now: int) -> None: ...


def note(number: int) -> Note:
    return Note(number.to_bytes(16, "big"), X)


@pytest.fixture
def store(disk: Path) -> Iterator[NodeStore]:
    with NodeStore(disk, Secret(b"k" * 32), Random(1).randbytes, unread_max=3, remembered_max=10) as store:
        yield store


def agent_of(scribe: RecordingMember, store: NodeStore) -> MemberRecords:
    return MemberRecords(scribe, store, 0, subscriptions_max=3)


def test_a_publication_is_safe_when_it_is_written_and_the_machine_hears_it_then(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    record = agent.publish(X, 0)
    [event] = scribe.events
    assert agent.take(event, 0)
    changes = agent.changes()
    assert not agent.is_stored(record)
    refused = store.write(changes)
    assert scribe.told == []
    agent.written(changes, refused, 0)
    assert agent.is_stored(record)
    assert scribe.told == [("stored", record)]
    assert agent.changes() == []
    assert agent.status().unsettled == 1


def test_a_temporary_subscription_is_known_as_such_in_the_next_life_until_a_client_keeps_it(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    kept, news = agent.subscribe(WEATHER, 0), agent.subscribe(NEWS, 0, keep=False)
    assert agent.subscribe(WEATHER, 0, keep=False) == kept
    agent.step(scribe, 0)
    later = agent_of(scribe, store)
    assert agent.temporary() == later.temporary() == store.temporary_subscriptions() == [news]
    assert later.subscribe(NEWS, 0) == news
    later.step(scribe, 0)
    assert later.temporary() == store.temporary_subscriptions() == []
    third = later.subscribe(Label("third"), 0, keep=False)
    later.step(scribe, 0)
    assert store.temporary_subscriptions() == [third]
    later.unsubscribe(third, 0)
    later.step(scribe, 0)
    assert later.temporary() == store.temporary_subscriptions() == []


def test_a_machine_that_fails_over_one_record_still_hears_of_the_others(
    store: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes calls this: an exception here would end the node."""
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    records = [agent.publish(X, 0) for _ in range(3)]
    for event in [*scribe.events, Delivered(1, note(1)), Delivered(1, note(2))]:
        assert agent.take(event, 0)
    stored, acknowledge = scribe.stored, scribe.acknowledge

    def fails(record: int, now: int) -> None:
        if record == records[0]:
            raise RecursionError
        stored(record, now)

    def fails_too(name: bytes, now: int) -> None:
        if name == note(1).id:
            raise RecursionError
        acknowledge(name, now)

    monkeypatch.setattr(scribe, "stored", fails)
    monkeypatch.setattr(scribe, "acknowledge", fails_too)
    changes = agent.changes()
    agent.written(changes, store.write(changes), 0)
    assert scribe.told == [("stored", records[1]), ("stored", records[2]), ("acknowledge", note(2).id)]
    assert all(map(agent.is_stored, records))


def test_a_settled_record_is_forgotten_and_counts_as_stored(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    record = agent.publish(X, 0)
    agent.step(scribe, 0)
    assert store.unsettled_publications() == [record]
    agent.withdraw(record, 0)
    agent.step(scribe, 0)
    assert store.unsettled_records() == {}
    assert agent.is_stored(record)
    assert agent.status().unsettled == 0


def test_the_settlement_time_of_publications_is_counted_except_for_withdrawn_ones(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    through, _, given_up = (agent.publish(X, now) for now in (10, 20, 30))
    agent.step(scribe, 30)
    agent.withdraw(given_up, 40)
    scribe.events.append(Settled(through))
    agent.step(scribe, 50)
    assert (agent.status().settled, agent.status().settled_us) == (1, 40)


def test_a_machines_own_records_are_kept_and_no_publications(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    scribe.events.append(Record(1, b"anchors"))
    agent.step(scribe, 0)
    assert (store.unsettled_records(), store.unsettled_publications()) == ({1: b"anchors"}, [])
    assert agent.status().unsettled == agent_of(RecordingMember(), store).status().unsettled == 0


def test_a_note_is_acknowledged_to_the_machine_when_it_is_written(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    number = agent.subscribe(NEWS, 0)
    scribe.events += [Delivered(1, note(1)), Delivered(7, note(2))]
    agent.step(scribe, 0)
    assert scribe.told[1:] == [("acknowledge", note(1).id), ("acknowledge", note(2).id)], "7 is nobody's"
    assert [place.note for place in store.unread(number)] == [note(1)]
    agent.acknowledge(number, note(1).id)
    agent.step(scribe, 0)
    assert store.unread(number) == []


def test_a_note_that_one_full_subscription_refuses_comes_again_for_all_without_a_repeat(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    full, other = agent.subscribe(NEWS, 0), agent.subscribe(WEATHER, 0)
    scribe.events += [Delivered(1, note(number)) for number in range(3)]
    agent.step(scribe, 0)
    scribe.told.clear()
    scribe.events += [Delivered(1, note(9)), Delivered(2, note(9))]
    agent.step(scribe, 0)
    assert scribe.told == []
    assert agent.status().full == 1
    agent.acknowledge(full, note(0).id)
    scribe.events += [Delivered(1, note(9)), Delivered(2, note(9))]
    agent.step(scribe, 0)
    assert ("acknowledge", note(9).id) in scribe.told
    assert [place.note for place in store.unread(full)] == [note(1), note(2), note(9)]
    assert [place.note for place in store.unread(other)] == [note(9)]


def test_a_note_that_a_full_subscription_refuses_comes_again_after_another_subscription_ended(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    ended, full = agent.subscribe(WEATHER, 0), agent.subscribe(NEWS, 0)
    scribe.events += [Delivered(2, note(number)) for number in range(3)]
    agent.step(scribe, 0)
    agent.unsubscribe(ended, 0)
    scribe.told.clear()
    scribe.events += [Delivered(1, note(9)), Delivered(2, note(9))]
    agent.step(scribe, 0)
    assert scribe.told == []
    agent.acknowledge(full, note(0).id)
    scribe.events += [Delivered(1, note(9)), Delivered(2, note(9))]
    agent.step(scribe, 0)
    assert ("acknowledge", note(9).id) in scribe.told
    assert [place.note for place in store.unread(full)] == [note(1), note(2), note(9)]
    assert agent.status().unread == {full: 3}


def test_the_next_life_has_the_subscriptions_by_their_numbers(store: NodeStore) -> None:
    first = RecordingMember()
    agent = agent_of(first, store)
    assert [agent.subscribe(interest, 0) for interest in (NEWS, WEATHER, NEWS)] == [1, 2, 1]
    agent.unsubscribe(1, 0)
    agent.step(first, 0)
    second = RecordingMember()
    agent = agent_of(second, store)
    assert {number: interest.constraints for number, interest in agent.interests().items()} == {2: WEATHER.constraints}
    second.events.append(Delivered(1, note(1)))
    agent.step(second, 0)
    assert agent.status().unread == {2: 1}
    assert [agent.subscribe(interest, 0) for interest in (NEWS, WEATHER)] == [3, 2], "1 was somebody's"


def test_subscriptions_are_bounded_and_there_must_be_one_to_end(store: NodeStore) -> None:
    agent = agent_of(RecordingMember(), store)
    for topic in "abc":
        agent.subscribe(Label(topic), 0)
    with pytest.raises(LocalError, match="3 subscriptions already"):
        agent.subscribe(NEWS, 0)
    with pytest.raises(LocalError, match="no subscription 9"):
        agent.unsubscribe(9, 0)


def test_a_subscription_whose_grant_has_ended_is_kept_and_reported(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent_ = agent_of(scribe, store)
    agent_.subscribe(NEWS, 0)
    agent_.step(scribe, 0)
    later = RecordingMember()
    later.refuses = (NEWS,)
    agent = agent_of(later, store)
    assert agent.status().lapsed == (1,)
    with pytest.raises(AuthorityError):
        agent.subscribe(NEWS, 0)
    later.refuses = ()
    assert agent.subscribe(NEWS, 0) == 1
    assert agent.status().lapsed == ()


def test_the_status_counts_what_waits(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    number, record = agent.subscribe(NEWS, 0), agent.publish(X, 0)
    scribe.events += [Waiting(1, 77), Waiting(9, 1), Overdue(record, X), Connect(Address("a"))]
    assert agent.step(scribe, 0) == [Connect(Address("a"))]
    assert (agent.status().waiting, agent.status().overdue) == ({number: 77}, (record,))
    scribe.events += [Delivered(1, note(1)), Settled(record)]
    agent.step(scribe, 0)
    assert (agent.status().waiting, agent.status().overdue) == ({}, ())


def test_a_failing_disk_confirms_nothing(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    record = agent.publish(X, 0)
    store._database._writer.execute("PRAGMA query_only = 1")
    with pytest.raises(StorageError):
        agent.step(scribe, 0)
    assert not agent.is_stored(record)
    assert scribe.told == []


def test_other_parts_of_a_node_can_keep_things(store: NodeStore) -> None:
    scribe = RecordingMember()
    agent = agent_of(scribe, store)
    agent.save_value("links", b"keys")
    agent.step(scribe, 0)
    assert store.saved_value("links") == b"keys"


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90"])
def test_a_damaged_interest_is_noticed(data: bytes) -> None:
    with pytest.raises(TamperedError):
        decode_interest(data)

"""The ledger: nothing that rests on a record is done before the record is on the disk."""

from __future__ import annotations

from veilcast.core.durable_records import DurableRecords
from veilcast.machine import Record, Settled


def test_what_rests_on_a_record_waits_for_it_and_then_is_done_at_once() -> None:
    ledger, done = DurableRecords({7: b""}), []
    record = ledger.keep(b"data")
    assert record == 8
    ledger.when_durable(record, 1, lambda now: done.append(now))
    assert ledger.next_event() == Record(8, b"data")
    assert done == []
    ledger.stored(record, 5)
    assert done == [5]
    ledger.when_durable(record, 6, lambda now: done.append(now))
    assert done == [5, 6]
    assert ledger.next_event() is None


def test_what_rests_on_a_record_that_is_written_over_waits_for_the_last_writing() -> None:
    ledger, done = DurableRecords({}), []
    record = ledger.keep(b"one")
    ledger.keep(b"two", record)
    ledger.when_durable(record, 1, lambda now: done.append(now))
    ledger.stored(record, 2)
    assert done == []
    ledger.stored(record, 3)
    assert done == [3]


def test_nothing_is_done_for_a_record_that_was_settled_meanwhile() -> None:
    ledger, done = DurableRecords({}), []
    record = ledger.keep(b"data")
    ledger.when_durable(record, 1, lambda now: done.append(now))
    ledger.settle(record)
    ledger.stored(record, 2)
    assert done == []
    assert len(ledger) == 0
    assert [ledger.next_event(), ledger.next_event()] == [Record(1, b"data"), Settled(1)]

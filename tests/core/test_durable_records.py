"""Durable records: a callback runs when its record is on the disk, and not before."""

from __future__ import annotations

from veilcast.core.durable_records import DurableRecords
from veilcast.machine import Record, Settled


def test_a_callback_runs_when_its_record_is_stored_and_at_once_after_that() -> None:
    records, done = DurableRecords({7: b""}), []
    record = records.keep(b"data")
    assert record == 8
    records.when_durable(record, 1, lambda now: done.append(now))
    assert records.next_event() == Record(8, b"data")
    assert done == []
    records.stored(record, 5)
    assert done == [5]
    records.when_durable(record, 6, lambda now: done.append(now))
    assert done == [5, 6]
    assert records.next_event() is None


def test_a_callback_of_a_record_that_is_written_twice_waits_for_the_second_write() -> None:
    records, done = DurableRecords({}), []
    record = records.keep(b"one")
    records.keep(b"two", record)
    records.when_durable(record, 1, lambda now: done.append(now))
    records.stored(record, 2)
    assert done == []
    records.stored(record, 3)
    assert done == [3]


def test_the_callbacks_of_a_settled_record_do_not_run() -> None:
    records, done = DurableRecords({}), []
    record = records.keep(b"data")
    records.when_durable(record, 1, lambda now: done.append(now))
    records.settle(record)
    records.stored(record, 2)
    assert done == []
    assert len(records) == 0
    assert [records.next_event(), records.next_event()] == [Record(1, b"data"), Settled(1)]

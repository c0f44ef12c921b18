"""The records of a host: a record is written before the machine learns that it is stored."""

from __future__ import annotations

from pathlib import Path
from random import Random

from veilcast.crypto.secret import Secret
from veilcast.machine import Address, Connect, Record, Settled
from veilcast.node.record_store import HostRecords, RecordStore


class RecordingMachine:
    """A machine that records its notices, and what was on the disk at that time."""

    def __init__(self, ledger: RecordStore) -> None:
        self.ledger, self.stored_ = ledger, list[tuple[int, list[int]]]()

    def stored(self, record: int, now: int) -> None:
        self.stored_.append((record, list(self.ledger.unsettled())))


def test_a_record_is_on_the_disk_when_its_machine_hears_of_it_once_for_each_time_it_asked(disk: Path) -> None:
    with RecordStore.in_directory(disk, Secret(b"k" * 32), Random(1).randbytes) as ledger:
        machine = RecordingMachine(ledger)
        clerk = HostRecords(machine)
        for event in (Record(1, b"one"), Record(2, b"two"), Record(1, b"again"), Settled(2), Record(3, b"three")):
            assert clerk.take(event, 0)
        assert not clerk.take(Connect(Address("peer")), 0)
        entries = clerk.changes()
        assert (machine.stored_, clerk.changes()) == ([], [])
        ledger.write(entries)
        clerk.written(entries, None, 0)
        assert machine.stored_ == [(record, [1, 3]) for record in (1, 2, 1, 3)]
        assert ledger.unsettled() == {1: b"again", 3: b"three"}

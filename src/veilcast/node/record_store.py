"""The records of a machine on the disk, from run to run (`machine.Durable`), and the hosts' use of them.

The hosts of a relay and a tree's directory store nothing else. A member's node has the same table, beside what it
stores for its clients (`store`).

`HostRecords` never blocks: changes gather, a caller that may wait for the disk writes them, and only then does the
machine learn that its records are stored. So nothing is sent that a kill would undo.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.errors import LostDatabaseError
from veilcast.faults import faults_of
from veilcast.machine import Durable, Entropy, Event, Record, Settled
from veilcast.node.database import Database
from veilcast.node.sealed_slots import Execute, ItemName, SealedSlots, SlotDatabase


class KeepRecord(msgspec.Struct, frozen=True):
    """Writes or overwrites a record; `published` is True for the record of a publication."""

    record: int
    data: bytes
    published: bool = False


class ForgetRecord(msgspec.Struct, frozen=True):
    """Removes a settled record."""

    record: int


RecordChange: TypeAlias = KeepRecord | ForgetRecord


class RecordTable:
    """The records in a database; the machine bounds their number."""

    def __init__(self, slots: SealedSlots) -> None:
        self._slots = slots

    def apply(self, run: Execute, entry: RecordChange) -> None:
        match entry:
            case KeepRecord(record, data, published):
                self._slots.put(run, ItemName(_KIND, record), bytes([published]) + data)
            case ForgetRecord(record):
                self._slots.drop(run, ItemName(_KIND, record))

    def unsettled(self) -> dict[int, bytes]:
        """Return the records that earlier runs of the machine stored and did not settle."""
        return {record: data[1:] for record, data in self._all()}

    def unsettled_publications(self) -> list[int]:
        """Return the numbers of the unsettled records that are publications."""
        return [record for record, data in self._all() if data[0]]

    def _all(self) -> list[tuple[int, bytes]]:
        return sorted((name.number, data) for name, data in self._slots.items(_KIND))


def read_records(database: SlotDatabase) -> dict[int, bytes]:
    """The records of a snapshot."""
    slots = SealedSlots(database)
    slots.load()
    return RecordTable(slots).unsettled()


class RecordDatabase(Protocol):
    """A database that holds records: one of the process's own (`Database`) or one that hosts share
    (`PostgresDatabase`)."""

    slots: SealedSlots

    def transaction(self) -> AbstractContextManager[Execute]: ...

    def close(self) -> None: ...


class RecordStore:
    """A database of records and nothing else."""

    def __init__(self, database: RecordDatabase) -> None:
        self._database = database
        self._records = RecordTable(database.slots)
        self.unsettled = self._records.unsettled

    @classmethod
    def in_directory(cls, directory: Path, secret: Secret, entropy: Entropy) -> RecordStore:
        """Open the store of this process alone, in a private directory."""
        return cls(Database(directory, FILE, secret, entropy))

    def write(self, entries: Sequence[RecordChange]) -> None:
        """Apply all changes or none, and return when they are on the disk.

        Of several changes of one record only the last is made, so a record that is settled within one write never
        reaches the disk.
        """
        last = {entry.record: entry for entry in entries}
        try:
            with self._database.transaction() as run:
                for entry in last.values():
                    self._records.apply(run, entry)
        except LostDatabaseError:
            raise  # There is nothing to load from, and the service ends.
        except BaseException:
            self._database.slots.load()
            raise

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


FILE: Final = "ledger.sqlite"
_KIND: Final = "record"


class HostRecords:
    def __init__(self, machine: Durable) -> None:
        self._machine, self._faults = machine, faults_of(machine)
        self._entries: list[RecordChange] = []

    def take(self, event: Event, now: int) -> bool:
        """Return False if the event does not concern records."""
        match event:
            case Record(record, data):
                self._entries.append(KeepRecord(record, data))
            case Settled(record):
                self._entries.append(ForgetRecord(record))
            case _:
                return False
        return True

    def changes(self) -> list[RecordChange]:
        """Return the changes since the last call; the caller writes them or stops using this object."""
        entries, self._entries = self._entries, []
        return entries

    def written(self, entries: Sequence[RecordChange], _: None, now: int) -> None:
        for entry in entries:
            if isinstance(entry, KeepRecord):
                self._faults.contain(self._machine.stored, entry.record, now)

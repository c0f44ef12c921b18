"""The ledger: a machine's records, as its driver keeps them from life to life (`machine.Durable`).

All that a relay's server or proxy keeps is here; a member's node has it too, beside what it keeps for its clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.machine import Entropy
from veilcast.node.database import Database, Execute
from veilcast.node.slots import Name


class Keep(msgspec.Struct, frozen=True):
    """Write a machine's record, or over it; that of a publication, or one of the machine's own."""

    record: int
    data: bytes
    published: bool = False


class Forget(msgspec.Struct, frozen=True):
    """A machine's record is settled."""

    record: int


Entry: TypeAlias = Keep | Forget


class Records:
    """The records in a database; the machine bounds their number."""

    def __init__(self, database: Database) -> None:
        self._slots = database.slots

    def apply(self, run: Execute, entry: Entry) -> None:
        match entry:
            case Keep(record, data, published):
                self._slots.put(run, Name(_KIND, record), bytes([published]) + data)
            case Forget(record):
                self._slots.drop(run, Name(_KIND, record))

    def kept(self) -> dict[int, bytes]:
        """What the machine's earlier lives had stored and did not settle."""
        return {record: data[1:] for record, data in self._all()}

    def published(self) -> list[int]:
        """Those among them that are publications."""
        return [record for record, data in self._all() if data[0]]

    def _all(self) -> list[tuple[int, bytes]]:
        found = ((name.number, self._slots.get(name)) for name in self._slots.names(_KIND))
        return sorted((record, data) for record, data in found if data is not None)


class Ledger:
    """A database of records and nothing else."""

    def __init__(self, directory: Path, secret: Secret, entropy: Entropy) -> None:
        self._database = Database(directory, FILE, secret, entropy)
        self._records = Records(self._database)
        self.kept = self._records.kept

    def write(self, entries: Sequence[Entry]) -> None:
        """Do all of it or nothing, and return when it is on the disk."""
        try:
            with self._database.transaction() as run:
                for entry in entries:
                    self._records.apply(run, entry)
        except BaseException:
            self._database.slots.load()
            raise

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


FILE: Final = "ledger.sqlite"
_KIND: Final = "record"

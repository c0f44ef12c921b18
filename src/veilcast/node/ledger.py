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
    """The table of records in a database; how many there are is for the machine to bound."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def apply(self, run: Execute, entry: Entry) -> None:
        match entry:
            case Keep(record, data, published):
                row = (record, self._database.seal(data, "record", record), published)
                run("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
            case Forget(record):
                run("DELETE FROM records WHERE record = ?", (record,))

    def kept(self) -> dict[int, bytes]:
        """What the machine's earlier lives had stored and did not settle."""
        rows = self._database.read("SELECT record, data FROM records ORDER BY record")
        return {record: self._database.unseal(data, "record", record) for record, data in rows}

    def published(self) -> list[int]:
        """Those among them that are publications."""
        return [
            record for (record,) in self._database.read("SELECT record FROM records WHERE published ORDER BY record")
        ]


class Ledger:
    """A database of records and nothing else."""

    def __init__(self, directory: Path, secret: Secret, entropy: Entropy) -> None:
        self._database = Database(directory, FILE, TABLE, secret, entropy)
        self._records = Records(self._database)
        self.kept = self._records.kept

    def write(self, entries: Sequence[Entry]) -> None:
        """Do all of it or nothing, and return when it is on the disk."""
        with self._database.transaction() as run:
            for entry in entries:
                self._records.apply(run, entry)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


FILE: Final = "ledger.sqlite"
TABLE: Final = "CREATE TABLE records (record INTEGER PRIMARY KEY, data BLOB NOT NULL, published INTEGER NOT NULL);"

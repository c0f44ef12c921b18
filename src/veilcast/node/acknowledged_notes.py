"""The notifications that a client has acknowledged: a table of fixed size, full from the start.

Claim: without the key, the table of a node that has read much looks like the table of a node that has read nothing.
Reason: the table holds keyed hashes of (subscription, id). The key selects one of a fixed number of rows for each hash.
A row has room for a fixed number of hashes and is sealed. A new hash pushes the oldest one out of its row. So the size
never changes, and SQLite writes each row in place.

The rows fill unevenly. With the default 65,536 (276 rows of 237), each of the last 45,000 acknowledgements is known
except with probability 10^-7, and each of the last 52,000 except with probability 1 in 2,500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from veilcast.crypto.derive import derive
from veilcast.crypto.seal import OVERHEAD
from veilcast.crypto.secret import Secret
from veilcast.errors import TamperedError


class RowDatabase(Protocol):
    """The part of a database that this table needs."""

    def seal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes: ...
    def unseal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes: ...


class AcknowledgedNotes:
    def __init__(self, database: RowDatabase, key: Secret, capacity: int) -> None:
        self._database = database
        self._key = derive(key, b"vc/acknowledged")
        self._width = min(WIDTH, max(1, capacity))
        self._count = max(1, capacity // self._width)

    def make(self, run: Callable[..., Any], names: Iterable[bytes] = ()) -> None:
        """Fill the empty table, and enter these names, the oldest first."""
        rows = [bytes(self._width * SIZE)] * self._count
        for name in names:
            place = self._place(name)
            rows[place] = rows[place][SIZE:] + name
        for place, row in enumerate(rows):
            run("INSERT INTO acknowledged VALUES (?, ?)", (place, self._database.seal(row, _KIND, place)))

    def fit(self, run: Callable[..., Any]) -> None:
        """Rebuild the table, with its contents, if it was made for another capacity."""
        found = run("SELECT place, names FROM acknowledged ORDER BY place").fetchall()
        size = self._width * SIZE + OVERHEAD
        if [(place, len(row)) for place, row in found] == [(place, size) for place in range(self._count)]:
            return
        rows = [self._database.unseal(row, _KIND, place) for place, row in found]
        if [place for place, _ in found] != list(range(len(rows))) or not rows:
            raise TamperedError("rows of acknowledged notifications are missing in the node's state")
        run("DELETE FROM acknowledged")
        names = (row[at : at + SIZE] for row in rows for at in range(0, len(row), SIZE))
        self.make(run, [name for name in names if any(name)])

    def add(self, run: Callable[..., Any], subscription: int, note: bytes) -> None:
        name = self.name(subscription, note)
        place = self._place(name)
        row = self._row(run, place)[SIZE:] + name
        run(_UPDATE, (self._database.seal(row, _KIND, place), place))

    def has(self, run: Callable[..., Any], subscription: int, note: bytes) -> bool:
        name = self.name(subscription, note)
        return name in self._row(run, self._place(name))

    def name(self, subscription: int, note: bytes) -> bytes:
        return derive(self._key, b"vc/ack-name", subscription.to_bytes(8, "big"), note, size=SIZE).reveal()

    def _place(self, name: bytes) -> int:
        return int.from_bytes(derive(self._key, b"vc/ack-place", name, size=8).reveal(), "big") % self._count

    def _row(self, run: Callable[..., Any], place: int) -> bytes:
        for (row,) in run("SELECT names FROM acknowledged WHERE place = ?", (place,)).fetchall():
            return self._database.unseal(row, _KIND, place)
        raise TamperedError("a row of acknowledged notifications is missing in the node's state")


TABLE: Final = "CREATE TABLE acknowledged (place INTEGER PRIMARY KEY, names BLOB NOT NULL);"
WIDTH: Final = 237
"""Hashes in a row: a sealed row of this width fills a page of SQLite."""
SIZE: Final = 16
"""Bytes of a hash."""
_KIND: Final = "acknowledged"
_UPDATE: Final = "UPDATE acknowledged SET names = ? WHERE place = ?"
ROWS: Final = (_KIND, "SELECT place, names FROM acknowledged", _UPDATE)
"""The sealing kind of the rows, and the statements that read all of them and write one."""

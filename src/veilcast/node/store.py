"""The store: what a member's node keeps over restarts, in one database of its own (`database`).

The machine's records, and for the clients their subscriptions, with what came for each and was not acknowledged.
`write` may run in a thread of its own; everything else reads what was committed last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError
from veilcast.machine import Entropy, Note, Publication
from veilcast.node import ledger
from veilcast.node.database import Database, Execute
from veilcast.node.ledger import Forget, Keep, Records


class Subscribe(msgspec.Struct, frozen=True):
    subscription: int
    interest: bytes


class Unsubscribe(msgspec.Struct, frozen=True):
    """And nothing that waits for it is kept."""

    subscription: int


class Arrive(msgspec.Struct, frozen=True):
    """A note came for a subscription; one that it has, or has acknowledged, changes nothing."""

    subscription: int
    note: Note


class Acknowledge(msgspec.Struct, frozen=True):
    """The client has the note of this id, and must not get it again."""

    subscription: int
    note: bytes


class Remember(msgspec.Struct, frozen=True):
    """Something else that a part of the node wants to know in its next life, under a name of its own."""

    name: str
    data: bytes


Change: TypeAlias = Keep | Forget | Subscribe | Unsubscribe | Arrive | Acknowledge | Remember


class Place(NamedTuple):
    """A note that waits for its client, and where it stands in the order of arrival."""

    place: int
    note: Note


class Store:
    """Bounded: `unread_max` notes for each subscription, `remembered_max` ids of acknowledged ones.

    How many records and subscriptions there are is for those to bound who make them.
    """

    def __init__(
        self, directory: Path, secret: Secret, entropy: Entropy, *, unread_max: int, remembered_max: int
    ) -> None:
        self._unread_max, self._remembered_max = unread_max, remembered_max
        self._database = Database(directory, FILE, _TABLES, secret, entropy)
        self._records = Records(self._database)
        self._waiting = Counter(self.count_unread())

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing

    def write(self, changes: Sequence[Change]) -> list[bytes]:
        """Do all of it or nothing, and return when it is on the disk: the ids of notes that there was no room for."""
        refused: list[bytes] = []
        try:
            with self._database.transaction() as run:
                for change in changes:
                    if not isinstance(change, Arrive):
                        self._apply(run, change)
                    elif not self._arrive(run, change.subscription, change.note):
                        refused.append(change.note.id)
        except BaseException:
            self._waiting = Counter(self.count_unread())
            raise
        return refused

    # --- reading

    def records(self) -> dict[int, bytes]:
        """What the machine's earlier lives had stored and did not settle."""
        return self._records.kept()

    def published(self) -> list[int]:
        """Those among them that are publications."""
        return self._records.published()

    def subscriptions(self) -> dict[int, bytes]:
        rows = self._database.read("SELECT subscription, interest FROM subscriptions ORDER BY subscription")
        return {number: self._database.unseal(data, "interest", number) for number, data in rows}

    def last_subscription(self) -> int:
        """The highest number that a subscription ever had, also one that has ended."""
        rows = self._database.read("SELECT seq FROM sqlite_sequence WHERE name = 'subscriptions'")
        return next((int(last) for (last,) in rows), 0)

    def unread(self, subscription: int, after: int = 0, limit: int = 64) -> list[Place]:
        """The next notes that wait for a subscription's acknowledgement, in the order in which they came."""
        rows = self._database.read(
            "SELECT place, note, publication FROM inbox WHERE subscription = ? AND place > ? ORDER BY place LIMIT ?",
            *(subscription, after, limit),
        )
        return [Place(place, Note(note, self._read_publication(data, note))) for place, note, data in rows]

    def count_unread(self) -> dict[int, int]:
        """How many notes wait for each subscription that has any."""
        return dict(
            self._database.read("SELECT subscription, count(*) FROM inbox GROUP BY subscription ORDER BY subscription")
        )

    def remembered(self, name: str) -> bytes | None:
        return self._database.remembered(name)

    # --- inside

    def _apply(self, run: Execute, change: Change) -> None:
        match change:
            case Keep() | Forget():
                self._records.apply(run, change)
            case Subscribe(number, interest):
                run(
                    "INSERT INTO subscriptions VALUES (?, ?)",
                    (number, self._database.seal(interest, "interest", number)),
                )
            case Unsubscribe(number):
                self._waiting.pop(number, None)
                for table in ("subscriptions", "inbox", "acknowledged"):
                    run(f"DELETE FROM {table} WHERE subscription = ?", (number,))  # noqa: S608 (our own three words)
            case Acknowledge(number, note):
                self._acknowledge(run, number, note)
            case Remember(name, data):
                self._database.remember(run, name, data)

    def _arrive(self, run: Execute, subscription: int, note: Note) -> bool:
        """False if there is no room for it."""
        name = {"subscription": subscription, "note": note.id}
        if self._waiting[subscription] >= self._unread_max:
            return bool(run(_KNOWN, name).fetchall())
        data = self._database.seal(msgspec.msgpack.encode(note.publication), "note", note.id)
        self._waiting[subscription] += run(_ARRIVE, {**name, "publication": data}).rowcount
        return True

    def _acknowledge(self, run: Execute, subscription: int, note: bytes) -> None:
        gone = run("DELETE FROM inbox WHERE subscription = ? AND note = ?", (subscription, note))
        if gone.rowcount:
            self._waiting[subscription] -= 1
            added = run("INSERT INTO acknowledged (subscription, note) VALUES (?, ?)", (subscription, note))
            oldest = (added.lastrowid or 0) - self._remembered_max
            run("DELETE FROM acknowledged WHERE place <= ?", (oldest,))

    def _read_publication(self, data: bytes, note: bytes) -> Publication:
        return _DECODER.decode(self._database.unseal(data, "note", note))


_DECODER: Final = MsgpackDecoder(Publication, TamperedError, "a notification in the node's state is damaged")
_ARRIVE: Final = """
INSERT INTO inbox (subscription, note, publication) SELECT :subscription, :note, :publication
WHERE EXISTS (SELECT 1 FROM subscriptions WHERE subscription = :subscription)
AND NOT EXISTS (SELECT 1 FROM acknowledged WHERE subscription = :subscription AND note = :note)
ON CONFLICT DO NOTHING
"""
_KNOWN: Final = """
SELECT 1 FROM inbox WHERE subscription = :subscription AND note = :note
UNION SELECT 1 FROM acknowledged WHERE subscription = :subscription AND note = :note
"""
FILE: Final = "node.sqlite"
_TABLES: Final = f"""
{ledger.TABLE}
CREATE TABLE subscriptions (subscription INTEGER PRIMARY KEY AUTOINCREMENT, interest BLOB NOT NULL);
CREATE TABLE inbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    note BLOB NOT NULL,
    publication BLOB NOT NULL,
    UNIQUE (subscription, note)
);
CREATE TABLE acknowledged (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    note BLOB NOT NULL,
    UNIQUE (subscription, note)
);
"""

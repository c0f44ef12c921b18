"""The store: what a node keeps over restarts, in one SQLite database in a directory of its own.

A node that is killed at any moment finds what it last committed: the database is written ahead and flushed before a
write counts (WAL, `synchronous=FULL`). All changes of one moment are one transaction, so nothing is ever half there.
What is said of topics, and by whom, is sealed with a key of the owner's keyring: whoever finds the disk sees how much
there is, and when it came, but not what. The directory is held by one process (flock) and is nobody else's to read.

There are two connections. `write` may run in a thread of its own, so that waiting for the disk never delays a link;
everything else reads what was committed last.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from veilcast.authority.vault import alone, flush_directory
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, PermissionsError, StorageError, TamperedError
from veilcast.machine import Entropy, Note, Publication


class Keep(msgspec.Struct, frozen=True):
    """Write a machine's record, or over it; that of a publication, or one of the machine's own."""

    record: int
    data: bytes
    published: bool = False


class Forget(msgspec.Struct, frozen=True):
    """A machine's record is settled."""

    record: int


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
        self._key, self._entropy = derive(secret, b"vc/node-state"), entropy
        self._unread_max, self._remembered_max = unread_max, remembered_max
        with ExitStack() as stack:
            _make_private(directory)
            stack.enter_context(alone(directory, by="another node; stop that one first, or name another directory"))
            with _naming(directory):
                self._writer = stack.enter_context(_opened(directory / FILE))
                self._reader = stack.enter_context(_opened(directory / FILE))
            self._check_owner(directory)
            self._waiting = Counter(self.count_unread())
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing

    def write(self, changes: Sequence[Change]) -> list[bytes]:
        """Do all of it or nothing, and return when it is on the disk: the ids of notes that there was no room for."""
        refused: list[bytes] = []
        with _naming(FILE):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                for change in changes:
                    if not isinstance(change, Arrive):
                        self._apply(change)
                    elif not self._arrive(change.subscription, change.note):
                        refused.append(change.note.id)
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                self._waiting = Counter(self.count_unread())
                raise
        return refused

    # --- reading

    def records(self) -> dict[int, bytes]:
        """What the machine's earlier lives had stored and did not settle."""
        rows = self._read("SELECT record, data FROM records ORDER BY record")
        return {record: self._unseal(data, "record", record) for record, data in rows}

    def published(self) -> list[int]:
        """Those among them that are publications."""
        return [record for (record,) in self._read("SELECT record FROM records WHERE published ORDER BY record")]

    def subscriptions(self) -> dict[int, bytes]:
        rows = self._read("SELECT subscription, interest FROM subscriptions ORDER BY subscription")
        return {number: self._unseal(data, "interest", number) for number, data in rows}

    def last_subscription(self) -> int:
        """The highest number that a subscription ever had, also one that has ended."""
        rows = self._read("SELECT seq FROM sqlite_sequence WHERE name = 'subscriptions'")
        return next((int(last) for (last,) in rows), 0)

    def unread(self, subscription: int, after: int = 0, limit: int = 64) -> list[Place]:
        """The next notes that wait for a subscription's acknowledgement, in the order in which they came."""
        rows = self._read(
            "SELECT place, note, publication FROM inbox WHERE subscription = ? AND place > ? ORDER BY place LIMIT ?",
            *(subscription, after, limit),
        )
        return [Place(place, Note(note, self._read_publication(data, note))) for place, note, data in rows]

    def count_unread(self) -> dict[int, int]:
        """How many notes wait for each subscription that has any."""
        return dict(self._read("SELECT subscription, count(*) FROM inbox GROUP BY subscription ORDER BY subscription"))

    def remembered(self, name: str) -> bytes | None:
        rows = self._read("SELECT data FROM state WHERE name = ?", name)
        return next((self._unseal(data, "state", name) for (data,) in rows), None)

    # --- inside

    def _apply(self, change: Change) -> None:
        run = self._writer.execute
        match change:
            case Keep(record, data, published):
                row = (record, self._seal(data, "record", record), published)
                run("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
            case Forget(record):
                run("DELETE FROM records WHERE record = ?", (record,))
            case Subscribe(number, interest):
                run("INSERT INTO subscriptions VALUES (?, ?)", (number, self._seal(interest, "interest", number)))
            case Unsubscribe(number):
                self._waiting.pop(number, None)
                for table in ("subscriptions", "inbox", "acknowledged"):
                    run(f"DELETE FROM {table} WHERE subscription = ?", (number,))  # noqa: S608 (our own three words)
            case Acknowledge(number, note):
                self._acknowledge(number, note)
            case Remember(name, data):
                run("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, self._seal(data, "state", name)))

    def _arrive(self, subscription: int, note: Note) -> bool:
        """False if there is no room for it."""
        name = {"subscription": subscription, "note": note.id}
        if self._waiting[subscription] >= self._unread_max:
            return bool(self._writer.execute(_KNOWN, name).fetchall())
        data = self._seal(msgspec.msgpack.encode(note.publication), "note", note.id)
        self._waiting[subscription] += self._writer.execute(_ARRIVE, {**name, "publication": data}).rowcount
        return True

    def _acknowledge(self, subscription: int, note: bytes) -> None:
        gone = self._writer.execute("DELETE FROM inbox WHERE subscription = ? AND note = ?", (subscription, note))
        if gone.rowcount:
            self._waiting[subscription] -= 1
            added = self._writer.execute(
                "INSERT INTO acknowledged (subscription, note) VALUES (?, ?)", (subscription, note)
            )
            oldest = (added.lastrowid or 0) - self._remembered_max
            self._writer.execute("DELETE FROM acknowledged WHERE place <= ?", (oldest,))

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _naming(FILE):
            return self._reader.execute(query, values).fetchall()

    def _read_publication(self, data: bytes, note: bytes) -> Publication:
        return msgspec.msgpack.decode(self._unseal(data, "note", note), type=Publication)

    def _seal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        return seal(self._key, data, context=_context(kind, name), entropy=self._entropy)

    def _unseal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        try:
            return unseal(self._key, data, context=_context(kind, name))
        except ForgedError as error:
            raise TamperedError(f"a {kind} in {FILE} is damaged, or of another keyring") from error

    def _check_owner(self, directory: Path) -> None:
        """Refuse the state of another keyring before anything is written to it."""
        try:
            known = self.remembered(_OWNER)
        except TamperedError as error:
            raise TamperedError(f"{directory} is the state of another keyring; name another directory") from error
        if known is None:
            self.write([Remember(_OWNER, b"")])


def _make_private(directory: Path) -> None:
    try:
        if not directory.exists():
            directory.mkdir(mode=0o700, parents=True)
            flush_directory(directory.parent)
        status = directory.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise StorageError(f"{directory} is not a directory; name another")
        if status.st_uid != os.geteuid():
            raise PermissionsError(f"{directory} belongs to another user; name a directory of your own")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionsError(f"{directory} can be read by others; chmod 700 {directory}")
        os.close(os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        flush_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot use {directory}: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that begins no transaction by itself, and may be handed from thread to thread."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        [(version,)] = connection.execute("PRAGMA user_version")
        if version not in (0, VERSION):
            raise StorageError(f"{path} is of version {version}, and this node writes version {VERSION}")
        if version == 0:
            connection.executescript(_TABLES)
        yield connection
    finally:
        connection.close()


@contextmanager
def _naming(what: object) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"the node's state in {what} cannot be used: {error}") from error


def _context(kind: str, name: int | str | bytes) -> bytes:
    return kind.encode() + b" " + (name if isinstance(name, bytes) else str(name).encode())


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
VERSION: Final = 1
_OWNER: Final = "owner"
_TABLES: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE records (record INTEGER PRIMARY KEY, data BLOB NOT NULL, published INTEGER NOT NULL);
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
CREATE TABLE state (name TEXT PRIMARY KEY, data BLOB NOT NULL);
PRAGMA user_version = {VERSION};
COMMIT;
"""

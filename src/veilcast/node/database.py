"""The database of one process: SQLite in a private directory, sealed, and certain of what it has committed.

A process that is killed at any moment finds its last commit: the database is written ahead and flushed before a write
counts (WAL, `synchronous=FULL`). All changes of one moment are one transaction. Everything in it is sealed with a key
of the owner's keyring and padded (`sealed_slots`, `acknowledged_notes`), and deleted data is overwritten
(`secure_delete`). A process that ends in order seals every row again and rewrites the file. So a thief of the disk sees
how many slots there are of each size class, and no trace of earlier ones. After a kill the thief also sees which rows
that run changed. One process locks the directory (flock), and only its owner may read it.

There are two connections. Writes may run in a thread of their own, so that waiting for the disk never delays a link.
Reads return the last commit.

Version 1 of the state had a table for each kind of item, with the ids of notifications, record numbers and counts in
clear. `take_version_1` reads and removes these tables, and the database writes their contents in the new form.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from veilcast.authority.secret_file import LOCKED_BY_NODE, flush_directory, lock_directory
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import Sealer
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, PermissionsError, StorageError, TamperedError, VeilcastError
from veilcast.machine import Entropy
from veilcast.node import acknowledged_notes, sealed_slots
from veilcast.node.acknowledged_notes import AcknowledgedNotes
from veilcast.node.sealed_slots import ItemName, SealedSlots

Run = Callable[..., Any]


class Version1State(NamedTuple):
    items: list[tuple[ItemName, bytes]]
    acknowledged: list[tuple[int, bytes]]
    """Subscription and id of each acknowledged note, the oldest first."""


def take_version_1(run: Run, unseal: Callable[[bytes, str, Any], bytes]) -> Version1State:
    """Read all tables of version 1, then remove them; in the transaction that writes the new ones."""
    tables = [name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    items: list[tuple[ItemName, bytes]] = []
    for record, data, published in run("SELECT record, data, published FROM records ORDER BY record").fetchall():
        items.append((ItemName("record", record), bytes([published]) + unseal(data, "record", record)))
    for name, data in run("SELECT name, data FROM state WHERE name <> 'owner'").fetchall():
        items.append((ItemName("state", text=name.encode()), unseal(data, "state", name)))
    old = []
    if "inbox" in tables:
        for number, data in run("SELECT subscription, interest FROM subscriptions").fetchall():
            items.append((ItemName("subscription", number), unseal(data, "interest", number)))
        inbox = "SELECT subscription, place, note, publication FROM inbox ORDER BY place"
        for number, place, note, data in run(inbox).fetchall():
            items.append((ItemName("note", number, place, note), unseal(data, "note", note)))
        for (last,) in run("SELECT seq FROM sqlite_sequence WHERE name = 'subscriptions'").fetchall():
            items.append((ItemName("last"), last.to_bytes(8, "big")))
        old = run("SELECT subscription, note FROM acknowledged ORDER BY place").fetchall()
        run("DELETE FROM sqlite_sequence")
    for table in tables:
        if not table.startswith("sqlite_"):
            run(f"DROP TABLE {table}")
    return Version1State(items, old)


Execute: TypeAlias = Callable[..., sqlite3.Cursor]


class RowSealer:
    """Seals the rows of one database; `where` names the database in errors."""

    def __init__(self, key: Secret, entropy: Entropy, where: str) -> None:
        self._sealer, self._entropy, self._where = Sealer(key), entropy, where

    def seal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        return self._sealer.seal(data, context=_context(kind, name), entropy=self._entropy)

    def unseal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        try:
            return self._sealer.unseal(data, context=_context(kind, name))
        except ForgedError as error:
            raise TamperedError(f"a {kind} in {self._where} is damaged, or of another keyring") from error


class DatabaseSnapshot(RowSealer):
    """The last commit of a database, read while another process may be writing. Nothing is changed or locked."""

    def __init__(self, directory: Path, file: str, secret: Secret, entropy: Entropy) -> None:
        super().__init__(derive(secret, b"vc/node-state"), entropy, file)
        path = directory / file
        if not path.exists():
            raise StorageError(f"there is no {path}; has the host run with this file?")
        try:
            self._connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
            self._connection.execute("BEGIN")
            version = self.read("PRAGMA user_version")
        except sqlite3.Error as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
        if version != [(VERSION,)]:
            raise StorageError(f"{path} is not of version {VERSION}; start the host once, which converts it")

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def add_rows(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> None:
        raise StorageError("a snapshot cannot be written")

    def close(self) -> None:
        self._connection.close()


class Database(RowSealer):
    """`remembered` is the number of acknowledged notifications to remember; 0 for none. The owner bounds the items."""

    def __init__(self, directory: Path, file: str, secret: Secret, entropy: Entropy, *, remembered: int = 0) -> None:
        self._file = file
        key = derive(secret, b"vc/node-state")
        super().__init__(key, entropy, file)
        self.slots = SealedSlots(self)
        self.acknowledged = AcknowledgedNotes(self, key, remembered)
        with ExitStack() as stack:
            _make_private(directory, file)
            stack.enter_context(lock_directory(directory, by=LOCKED_BY_NODE))
            with self._naming_file(directory):
                self._writer = stack.enter_context(_open_connection(directory / file))
                self._reader = stack.enter_context(_open_connection(directory / file))
                self._prepare(directory / file)
            self._stack = stack.pop_all()

    def close(self) -> None:
        # Nothing is lost if it fails (a full disk, damaged rows): the next start finds the last commit.
        with suppress(VeilcastError), self._naming_file(self._file):
            self._rewrite()
        self._stack.close()

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """All statements inside are on the disk when the block is left, or none are."""
        with self._naming_file(self._file):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer.execute
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._naming_file(self._file):
            return self._reader.execute(query, values).fetchall()

    def add_rows(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Execute a statement for each of these rows, in a transaction."""
        self._writer.executemany(statement, rows)

    def _prepare(self, path: Path) -> None:
        """Create the tables of a new file, convert an older version, and build the index."""
        [(version,)] = self.read("PRAGMA user_version")
        if version not in (NEW, OLD, UNWIPED, VERSION):
            raise StorageError(f"{path} is of version {version}, and this node writes version {VERSION}")
        if version != NEW:
            self._check_owner(path.parent)
        if version in (NEW, OLD):
            with self.transaction() as run:
                self._make(run, old=version == OLD)
        if version in (OLD, UNWIPED):
            self._clear_free_pages()
        if version != VERSION:
            self._wipe()
        self.slots.load()
        with self.transaction() as run:
            self.slots.trim(run)
            self.acknowledged.fit(run)

    def _make(self, run: Execute, *, old: bool) -> None:
        found = take_version_1(run, self.unseal) if old else None
        for table in (sealed_slots.TABLE, acknowledged_notes.TABLE, _STATE):
            run(table)
        run("INSERT INTO state VALUES (?, ?)", (_OWNER, self.seal(b"", "state", _OWNER)))
        self.slots.grow()
        names = []
        if found is not None:
            for name, data in found.items:
                self.slots.put(run, name, data)
            names = [self.acknowledged.name(*one) for one in found.acknowledged]
        self.acknowledged.make(run, names)
        run(f"PRAGMA user_version = {UNWIPED}")

    def _wipe(self) -> None:
        """Rewrite the whole file: free pages of an earlier version may hold deleted data, and the order of pages tells,
        too."""
        self._writer.execute("VACUUM")
        self._write_zeros(RESERVE)
        # The version says that this is done: a process that is killed before the log is in the file begins again.
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", f"PRAGMA user_version = {VERSION}"):
            self._writer.execute(statement).fetchall()

    def _clear_free_pages(self) -> None:
        """Overwrite free pages in the file itself, before it gets shorter: a file system keeps what is cut off."""
        [(free, size)] = self.read("SELECT * FROM pragma_freelist_count, pragma_page_size")
        self._write_zeros(min(free * size, ZEROS_MAX))
        self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def _write_zeros(self, size: int) -> None:
        """Write this many zeros, first over free pages, and free their pages again."""
        with self.transaction() as run:
            run("CREATE TABLE reserve (data BLOB)")
            run("INSERT INTO reserve VALUES (zeroblob(?))", (size,))
            run("DROP TABLE reserve")

    def _rewrite(self) -> None:
        """Seal every row again and rewrite the file, so that neither tells what this run changed.

        Otherwise two copies of a disk show which rows changed in between, and free pages show that large items came and
        went. A file of more than `REWRITE_MAX` is not rewritten: its length tells as much.
        """
        [(pages, size)] = self.read("SELECT * FROM pragma_page_count, pragma_page_size")
        if pages * size > REWRITE_MAX:
            return
        with self.transaction():
            for kind, select, update in (sealed_slots.ROWS, acknowledged_notes.ROWS):
                found = self.read(select)
                self.add_rows(update, ((self.seal(self.unseal(row, kind, at), kind, at), at) for at, row in found))
        self._wipe()

    def _check_owner(self, directory: Path) -> None:
        """Refuse the state of another keyring before anything is written to it."""
        for (data,) in self.read("SELECT data FROM state WHERE name = ?", _OWNER):
            try:
                self.unseal(data, "state", _OWNER)
            except TamperedError as error:
                raise TamperedError(f"{directory} is the state of another keyring; name another directory") from error

    @contextmanager
    def _naming_file(self, what: object) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"the node's state in {what} cannot be used: {error}") from error


def _make_private(directory: Path, file: str) -> None:
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
        os.close(os.open(directory / file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        flush_directory(directory)
    except OSError as error:
        raise StorageError(f"cannot use {directory}: {error.strerror}") from error


@contextmanager
def _open_connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that begins no transaction by itself and may be used by several threads in turn."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        yield connection
        # Deleted data must not stay in the log when the node is off. A full disk keeps the log; the next start
        # reads it, so nothing is lost, and no error here hides the one that ended the node.
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def _context(kind: str, name: int | str | bytes) -> bytes:
    return kind.encode() + b" " + (name if isinstance(name, bytes) else str(name).encode())


VERSION: Final = 3
UNWIPED: Final = 2
"""The data is converted; the file may still have pages with deleted data."""
OLD: Final = 1
NEW: Final = 0
REWRITE_MAX: Final = 64 << 20
"""Largest file, in bytes, that is rewritten when its process ends: SQLite makes the copy in memory."""
ZEROS_MAX: Final = 1 << 29
"""Bytes of free pages that are overwritten at once; SQLite accepts no value of a billion bytes."""
RESERVE: Final = 1 << 20
"""Bytes of zeros in the file from the start, so that a small backlog does not show in its size."""
_OWNER: Final = "owner"
_STATE: Final = "CREATE TABLE state (name TEXT PRIMARY KEY, data BLOB NOT NULL);"

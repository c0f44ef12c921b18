"""A database of one process's own: SQLite in a private directory, sealed, and sure of what it has committed.

Whoever is killed at any moment finds what it last committed: the database is written ahead and flushed before a write
counts (WAL, `synchronous=FULL`). All changes of one moment are one transaction, so nothing is ever half there. What is
said is sealed with a key of the owner's keyring: whoever finds the disk sees how much there is, and when it came, but
not what. The directory is held by one process (flock) and is nobody else's to read.

There are two connections. Writing may be done in a thread of its own, so that waiting for the disk never delays a link;
reading gives what was committed last.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from veilcast.authority.vault import alone, flush_directory
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, PermissionsError, StorageError, TamperedError
from veilcast.machine import Entropy

Execute: TypeAlias = Callable[..., sqlite3.Cursor]


class Database:
    """`tables` makes them, in a file that has none yet; how much they hold is for those to bound who fill them."""

    def __init__(self, directory: Path, file: str, tables: str, secret: Secret, entropy: Entropy) -> None:
        self._file, self._entropy = file, entropy
        self._key = derive(secret, b"vc/node-state")
        with ExitStack() as stack:
            _make_private(directory, file)
            stack.enter_context(alone(directory, by="another node; stop that one first, or name another directory"))
            with self._naming(directory):
                self._writer = stack.enter_context(_opened(directory / file, tables))
                self._reader = stack.enter_context(_opened(directory / file, tables))
            self._check_owner(directory)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """All that is executed within it is on the disk when it is left, or nothing is."""
        with self._naming(self._file):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer.execute
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._naming(self._file):
            return self._reader.execute(query, values).fetchall()

    def remember(self, run: Execute, name: str, data: bytes) -> None:
        """Keep something under a name of its own, in a transaction."""
        run("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, self.seal(data, "state", name)))

    def remembered(self, name: str) -> bytes | None:
        rows = self.read("SELECT data FROM state WHERE name = ?", name)
        return next((self.unseal(data, "state", name) for (data,) in rows), None)

    def seal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        return seal(self._key, data, context=_context(kind, name), entropy=self._entropy)

    def unseal(self, data: bytes, kind: str, name: int | str | bytes) -> bytes:
        try:
            return unseal(self._key, data, context=_context(kind, name))
        except ForgedError as error:
            raise TamperedError(f"a {kind} in {self._file} is damaged, or of another keyring") from error

    def _check_owner(self, directory: Path) -> None:
        """Refuse the state of another keyring before anything is written to it."""
        try:
            known = self.remembered(_OWNER)
        except TamperedError as error:
            raise TamperedError(f"{directory} is the state of another keyring; name another directory") from error
        if known is None:
            with self.transaction() as run:
                self.remember(run, _OWNER, b"")

    @contextmanager
    def _naming(self, what: object) -> Iterator[None]:
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
def _opened(path: Path, tables: str) -> Iterator[sqlite3.Connection]:
    """A connection that begins no transaction by itself, and may be handed from thread to thread."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        [(version,)] = connection.execute("PRAGMA user_version")
        if version not in (0, VERSION):
            raise StorageError(f"{path} is of version {version}, and this node writes version {VERSION}")
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE;{tables}{_STATE}PRAGMA user_version = {VERSION};COMMIT;")
        yield connection
    finally:
        connection.close()


def _context(kind: str, name: int | str | bytes) -> bytes:
    return kind.encode() + b" " + (name if isinstance(name, bytes) else str(name).encode())


VERSION: Final = 1
_OWNER: Final = "owner"
_STATE: Final = "CREATE TABLE state (name TEXT PRIMARY KEY, data BLOB NOT NULL);"

"""A host's records in PostgreSQL, which several servers of one relay can reach: one serves, the others stand by.

1. One server at a time. A server first takes an advisory lock of its session, and waits for it as long as another
   server has it. The lock ends with the session: when the server ends or is killed, when the database ends, or when the
   database finds that the server's machine has gone (TCP keepalive).
2. Property: nothing that a server has confirmed is lost. Assumption: the database keeps what it has committed; this
   module refuses one with `fsync = off`, and turns `synchronous_commit` on. Reason: a confirmation follows the commit
   of the record that it relies on (`core.durable_records`). The next server reads all records after it has the lock.
3. A server that has lost its session cannot commit, since it never opens a second one: its next write raises
   `LostDatabaseError`, which ends the service. Until then it may go on running while another server has the lock. So a
   machine on a shared database confirms nothing without a write (`RelayServer`, `shared`). No clock is part of this
   argument.
4. A server without work learns of the loss by `watch`, which asks the session every `WATCH_S` seconds.
5. Rows are sealed slots (`sealed_slots`), under a key of the relay's that all its servers have. The database's operator
   sees how many slots there are of each size, and which of them change when. PostgreSQL keeps old versions of a row
   until it cleans up, and in its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LostDatabaseError, StorageError, TamperedError
from veilcast.machine import Entropy
from veilcast.node.database import RowSealer
from veilcast.node.sealed_slots import Execute, SealedSlots

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:  # An optional extra: only a server whose file has a `database` comes here.
    raise ConfigError(
        "database: the PostgreSQL driver is not installed; install it: pip install 'veilcast[postgres]'"
    ) from error

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresDatabase(RowSealer):
    """`told` receives a sentence for the operator if another server has the lock; opening then waits for it.

    Raises `LostDatabaseError` if the database does not answer or ends the session.
    """

    def __init__(self, where: str, key: Secret, entropy: Entropy, told: Callable[[str], object]) -> None:
        options = check_database(where)
        super().__init__(key, entropy, "the database")
        self._busy = Lock()
        """A session does one thing at a time, and `watch` has a thread of its own."""
        with self._as_our_errors():
            self._session: Connection[Any] = psycopg.connect(**options, autocommit=True)
        self.slots = SealedSlots(self)
        try:
            with self._as_our_errors():
                self._check_promises()
                self._take_lock(told)
                self._prepare()
        except BaseException:
            self._session.close()
            raise

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """All statements inside are committed when the block is left, or none are."""
        with self._busy, self._as_our_errors(), self._session.pipeline(), self._session.transaction():
            yield self._run

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._as_our_errors():
            return list(self._run(query, values).fetchall())

    def add_rows(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """Execute a statement for each of these rows, in a transaction."""
        for row in rows:
            self._run(statement, row)

    async def watch(self) -> None:
        """Ask the session again and again. Never returns; raises `LostDatabaseError` when it has ended."""
        while True:
            await asyncio.sleep(WATCH_S)
            await asyncio.to_thread(self._ask)

    def _ask(self) -> None:
        with self._busy:
            self.read("SELECT 1")

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        # Statements are constants of ours, shared with SQLite, which marks values by "?".
        return self._session.execute(statement.replace("?", "%s").encode(), values)

    def _check_promises(self) -> None:
        """Refuse a database that may forget what it has committed, or ask it not to."""
        [(in_recovery, fsync, commits)] = self.read(
            "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit')"
        )
        if in_recovery:
            raise StorageError("database: this one is a copy that cannot be written; name the primary, or both")
        if fsync == "off":
            raise StorageError("database: it has fsync = off, so a crash loses what was confirmed; turn fsync on")
        if commits in ("off", "local"):
            self.read("SELECT set_config('synchronous_commit', 'on', false)")
        # Older databases have none.
        self.read("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")

    def _take_lock(self, told: Callable[[str], object]) -> None:
        [(taken,)] = self.read("SELECT pg_try_advisory_lock(?)", _LOCK)
        if not taken:
            told("another server of this relay serves; this one stands by and takes over when that one ends")
            self.read("SELECT pg_advisory_lock(?)::text", _LOCK)

    def _prepare(self) -> None:
        """Create the tables of a new database, and build the index."""
        if not self.read("SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'state'", _SCHEMA):
            with self._session.transaction():
                for statement in _TABLES:
                    self._run(statement)
                self._run("INSERT INTO state VALUES (?, ?, ?)", (_OWNER, VERSION, self.seal(b"", "state", _OWNER)))
                self.slots.grow()
        [(version, data)] = self.read("SELECT version, data FROM state WHERE name = ?", _OWNER)
        if version != VERSION:
            raise StorageError(f"database: its state is of version {version}, and this server writes {VERSION}")
        try:
            self.unseal(data, "state", _OWNER)
        except TamperedError as error:
            raise TamperedError("database: it has the state of another relay; name another database") from error
        self.slots.load()
        with self.transaction() as run:
            self.slots.trim(run)

    @contextmanager
    def _as_our_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            problem = _first_line(error)
            session = getattr(self, "_session", None)
            if session is None or session.closed:
                raise LostDatabaseError(f"database: {problem}") from error
            raise StorageError(f"database: {problem}") from error


class PostgresSnapshot(RowSealer):
    """The last commit of a database, read while a server may be writing. Nothing is changed, and no lock is taken."""

    def __init__(self, where: str, key: Secret, entropy: Entropy) -> None:
        super().__init__(key, entropy, "the database")
        try:
            self._session: Connection[Any] = psycopg.connect(**check_database(where))
            self._session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._session.read_only = True
        except psycopg.Error as error:
            raise StorageError(f"database: {_first_line(error)}") from error

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return list(self._session.execute(query.replace("?", "%s").encode(), values).fetchall())
        except psycopg.Error as error:
            raise StorageError(f"database: {_first_line(error)}") from error

    def add_rows(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> None:
        raise StorageError("a snapshot cannot be written")

    def close(self) -> None:
        self._session.close()


def check_database(where: str) -> dict[str, Any]:
    """Return the options of a session from a connection string. Raises `ConfigError` for a wrong or unsafe one."""
    try:
        options = dict(conninfo_to_dict(where))
    except psycopg.Error as error:
        raise ConfigError(
            f"database: {_first_line(error)}; write it as postgresql:///NAME, or host=... dbname=..."
        ) from error
    if "password" in options:
        raise ConfigError("database: no password stands in this file; put it into ~/.pgpass, or name a passfile")
    hosts = str(options.get("hostaddr") or options.get("host") or "").split(",")
    distant = [host for host in hosts if host and not host.startswith(("/", "@")) and host not in _HERE]
    if distant and options.get("sslmode") != "verify-full":
        raise ConfigError(f"database: {distant[0]} is another machine, so add sslmode=verify-full")
    settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    return {**_OPTIONS, **options, "options": f"{options.get('options') or ''} {settings}".strip()}


def does_answer(where: str) -> bool:
    """True if the database accepts a session that can write."""
    try:
        psycopg.connect(**check_database(where)).close()
    except psycopg.Error:
        return False
    return True


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


VERSION: Final = 1
WATCH_S: Final = 2.0
_LOCK: Final = 0x7665696C63617374
"""The number of the advisory lock: "veilcast". A database serves one relay."""
_SCHEMA: Final = "veilcast"
_OWNER: Final = "owner"
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_OPTIONS: Final = {
    "application_name": "veilcast relay server",
    "connect_timeout": 10,
    "target_session_attrs": "read-write",
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""A session whose database has vanished without a word ends after some twenty seconds. A file can say otherwise."""
_SESSION: Final = {
    "search_path": _SCHEMA,
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""What a session depends on, whatever the database's defaults are. The database's side of keepalive frees the lock of a
server whose machine has vanished."""
_TABLES: Final = (
    f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}",
    "CREATE TABLE state (name text PRIMARY KEY, version integer NOT NULL, data bytea NOT NULL)",
    # A changed row finds room on its own page, and nothing tries to compress what is sealed.
    "CREATE TABLE slots (slot integer PRIMARY KEY, data bytea NOT NULL) WITH (fillfactor = 50)",
    "ALTER TABLE slots ALTER COLUMN data SET STORAGE EXTERNAL",
)

"""Records in PostgreSQL: only one server has them, they outlive it and the database, and they are sealed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from support import postgres_server
from support.postgres_server import PostgresServer
from support.waits import HANG_S, wait_until
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LostDatabaseError, StorageError, TamperedError
from veilcast.node.record_store import ForgetRecord, KeepRecord, RecordStore, read_records

MISSING = postgres_server.reason_to_skip()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
if MISSING is None or TYPE_CHECKING:
    from veilcast.node import postgres
    from veilcast.node.postgres import PostgresDatabase, PostgresSnapshot, check_database, does_answer

KEY = Secret(b"k" * 32)
END_SESSION = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
PLANTED = b"the planted pseudonym"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.end()


@pytest.fixture
def server(cluster: PostgresServer) -> PostgresServer:
    cluster.psql("DROP SCHEMA IF EXISTS veilcast CASCADE")
    return cluster


def opened(server: PostgresServer, key: Secret = KEY, told: list[str] | None = None) -> RecordStore:
    heard = told if told is not None else list[str]()
    return RecordStore(PostgresDatabase(server.name, key, Random(1).randbytes, heard.append))


@pytest.mark.all_only
def test_the_next_server_receives_the_unsettled_records(server: PostgresServer) -> None:
    with opened(server) as records:
        assert records.unsettled() == {}
        records.write([KeepRecord(1, b"one"), KeepRecord(2, b"two"), KeepRecord(3, b"three" * 1000)])
        records.write([ForgetRecord(2), KeepRecord(1, b"another one")])
        records.write([KeepRecord(4, b"short"), ForgetRecord(4)])
        records.write([KeepRecord(number, b"%d" % number) for number in range(10, 600)])
        records.write([ForgetRecord(number) for number in range(20, 600)])
    expected = {1: b"another one", 3: b"three" * 1000, **{number: b"%d" % number for number in range(10, 20)}}
    for _ in range(2):
        with opened(server) as records:
            assert records.unsettled() == expected


@pytest.mark.all_only
def test_entries_are_done_all_or_none(server: PostgresServer) -> None:
    with opened(server) as records:
        records.write([KeepRecord(1, b"one")])
        with pytest.raises(TypeError):
            records.write([KeepRecord(2, b"two"), KeepRecord(3, "no bytes")])  # type: ignore[arg-type]
        assert records.unsettled() == {1: b"one"}
        records.write([KeepRecord(2, b"two")])
        assert records.unsettled() == {1: b"one", 2: b"two"}


@pytest.mark.all_only
def test_the_database_shows_nothing_without_the_key_and_another_relay_is_refused(server: PostgresServer) -> None:
    with opened(server) as records:
        records.write([KeepRecord(1, PLANTED)])
    rows = server.psql("SELECT data FROM veilcast.slots UNION ALL SELECT data FROM veilcast.state")
    assert len(rows) == 257
    assert not [row for (row,) in rows if PLANTED in bytes(row)]
    with pytest.raises(TamperedError, match="the state of another relay"):
        opened(server, Secret(b"l" * 32))
    with opened(server) as records:
        assert records.unsettled() == {1: PLANTED}


@pytest.mark.all_only
def test_a_second_server_stands_by_and_reads_what_the_first_has_written(server: PostgresServer) -> None:
    first, told, found = opened(server), list[str](), list[dict[int, bytes]]()

    def stand_by() -> None:
        with opened(server, told=told) as records:
            found.append(records.unsettled())

    second = Thread(target=stand_by)
    second.start()
    wait_until(lambda: told)
    assert "another server of this relay serves; this one stands by" in told[0]
    first.write([KeepRecord(1, b"written while the second one waits")])
    assert not found
    first.close()
    second.join(HANG_S)
    assert found == [{1: b"written while the second one waits"}]


@pytest.mark.all_only
def test_a_snapshot_reads_what_is_committed_while_a_server_has_the_records(server: PostgresServer) -> None:
    with opened(server) as records:
        records.write([KeepRecord(1, b"one")])
        snapshot = PostgresSnapshot(server.name, KEY, Random(1).randbytes)
        assert read_records(snapshot) == {1: b"one"}
        records.write([KeepRecord(1, b"another one")])
        snapshot.close()
        with pytest.raises(StorageError, match="database: "):
            snapshot.read("SELECT 1")
        other = PostgresSnapshot(server.name, Secret(b"l" * 32), Random(1).randbytes)
        with pytest.raises(TamperedError):
            read_records(other)
        other.close()


@pytest.mark.all_only
def test_a_server_that_lost_its_session_cannot_write_any_more(server: PostgresServer) -> None:
    """Its lock went with the session, so another server may have the records."""
    with opened(server) as records:
        records.write([KeepRecord(1, b"one")])
        server.psql(END_SESSION)
        for _ in range(2):
            with pytest.raises(LostDatabaseError, match="database: "):
                records.write([KeepRecord(2, b"two")])
        with opened(server) as other:
            assert other.unsettled() == {1: b"one"}


@pytest.mark.all_only
def test_an_idle_server_learns_that_its_session_has_ended(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "WATCH_S", 0.01)
    database = PostgresDatabase(server.name, KEY, Random(1).randbytes, print)

    async def watch() -> None:
        watching = asyncio.create_task(database.watch())
        await asyncio.sleep(0)
        assert not watching.done()
        await asyncio.to_thread(server.psql, END_SESSION)
        with pytest.raises(LostDatabaseError):
            await watching

    asyncio.run(watch())
    database.close()


@pytest.mark.all_only
def test_a_killed_database_has_everything_that_was_written(server: PostgresServer) -> None:
    with opened(server) as records:
        for number in range(20):
            records.write([KeepRecord(number, b"%d" % number)])
        server.kill()
        with pytest.raises(LostDatabaseError):
            records.write([KeepRecord(99, b"never confirmed")])
    assert not does_answer(server.name)
    with pytest.raises(LostDatabaseError, match="database: "):
        opened(server)
    server.start()
    assert does_answer(server.name)
    with opened(server) as records:
        assert records.unsettled() == {number: b"%d" % number for number in range(20)}


@pytest.mark.all_only
def test_a_database_that_may_forget_is_refused_or_told_not_to() -> None:
    forgetful = PostgresServer(fsync="off")
    try:
        with pytest.raises(StorageError, match="fsync = off"):
            opened(forgetful)
    finally:
        forgetful.end()
    careless = PostgresServer(synchronous_commit="off", statement_timeout="1")
    try:
        with opened(careless) as records:
            records.write([KeepRecord(number, b"x" * 4000) for number in range(100)])
            [(commits, timeout)] = records._database.read(  # type: ignore[attr-defined]
                "SELECT current_setting('synchronous_commit'), current_setting('statement_timeout')"
            )
            assert (commits, timeout) == ("on", "0")
    finally:
        careless.end()


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("postgresql:///relay?password=secret", "no password stands in this file; put it into ~/.pgpass"),
        ("host=db.example dbname=relay", "db.example is another machine, so add sslmode=verify-full"),
        ("host=/run/postgresql,192.0.2.1 sslmode=require", "192.0.2.1 is another machine"),
        ("relay", "write it as postgresql:///NAME"),
        ("host=x nonsense=1", "write it as postgresql:///NAME"),
    ],
)
def test_a_wrong_or_unsafe_connection_string_is_refused_in_one_line(where: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        check_database(where)
    assert str(refused.value).startswith("database: ")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "where",
    ["postgresql:///relay", "host=/run/postgresql", "postgresql://127.0.0.1/relay", "host=a,b sslmode=verify-full"],
)
def test_a_database_here_or_one_that_proves_its_name_is_accepted(where: str) -> None:
    assert check_database(where)

"""The store: changes are written completely or not at all, one process uses it, and only its owner can read it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.waits import HANG_S
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import OVERHEAD, seal
from veilcast.crypto.secret import Secret
from veilcast.errors import PermissionsError, StorageError, TamperedError
from veilcast.machine import Note, Publication
from veilcast.node import acknowledged_notes
from veilcast.node.record_store import ForgetRecord, KeepRecord
from veilcast.node.store import (
    FILE,
    AcknowledgeNote,
    AddNote,
    AddSubscription,
    NodeStore,
    RemoveSubscription,
    SaveValue,
    StoreChange,
)

SECRET = Secret(b"k" * 32)
PLANTED = b"the planted topic"


def opened(directory: Path, secret: Secret = SECRET, unread: int = 10, remembered: int = 10) -> NodeStore:
    return NodeStore(directory, secret, Random(1).randbytes, unread_max=unread, remembered_max=remembered)


def note(number: int, body: bytes = b"body") -> Note:
    return Note(number.to_bytes(16, "big"), Publication((("topic", PLANTED.decode()),), body))


def waiting(store: NodeStore, subscription: int = 1) -> list[int]:
    return [int.from_bytes(place.note.id, "big") for place in store.unread(subscription, limit=1000)]


# --- what is written ----------------------------------------------------------------------------------------


def test_written_changes_are_there_in_the_next_run(disk: Path) -> None:
    with opened(disk / "state") as store:
        store.write(
            [
                KeepRecord(1, b"anchors"),
                KeepRecord(2, b"x", True),
                KeepRecord(3, b"y", True),
                AddSubscription(1, b"all"),
            ]
        )
        store.write([ForgetRecord(2), KeepRecord(1, b"others"), AddNote(1, note(7)), SaveValue("links", b"keys")])
    with opened(disk / "state") as store:
        assert store.unsettled_records() == {1: b"others", 3: b"y"}
        assert store.unsettled_publications() == [3]
        assert store.subscriptions() == {1: b"all"}
        assert [place.note for place in store.unread(1)] == [note(7)]
        assert store.count_unread() == {1: 1}
        assert store.saved_value("links") == b"keys"
        assert store.saved_value("others") is None


def test_changes_are_done_all_or_none(disk: Path) -> None:
    with opened(disk) as store:
        store.write([AddSubscription(1, b"all")])
        with pytest.raises(StorageError):
            store.write([KeepRecord(2, b"x"), AddSubscription(1, b"the same number again")])
        assert store.unsettled_records() == {}
        store.write([KeepRecord(2, b"x")])
        assert store.unsettled_records() == {2: b"x"}


def test_a_failed_write_takes_no_room(disk: Path) -> None:
    with opened(disk, unread=2) as store:
        store.write([AddSubscription(1, b"all"), AddNote(1, note(1))])
        with pytest.raises(StorageError):
            store.write([AddNote(1, note(2)), AddSubscription(1, b"the same number again")])
        assert store.write([AddNote(1, note(3))]) == []
        assert store.write([AddNote(1, note(2))]) == [note(2).id]
    with opened(disk, unread=2) as store:
        assert store.write([AddNote(1, note(2)), AddNote(1, note(1))]) == [note(2).id]


def test_a_number_of_a_subscription_that_ended_is_known_for_ever(disk: Path) -> None:
    with opened(disk) as store:
        assert store.last_subscription() == 0
        store.write([AddSubscription(1, b"a"), AddSubscription(2, b"b"), AddNote(2, note(1)), RemoveSubscription(2)])
        assert store.last_subscription() == 2
        assert waiting(store, 2) == []


# --- the inbox ----------------------------------------------------------------------------------------------


def test_a_note_waits_until_it_is_acknowledged_and_does_not_come_again(disk: Path) -> None:
    with opened(disk) as store:
        store.write(
            [
                AddSubscription(1, b"all"),
                AddSubscription(2, b"all"),
                *(AddNote(1, note(number)) for number in (3, 1, 2)),
            ]
        )
        store.write([AddNote(1, note(1)), AddNote(2, note(1)), AddNote(9, note(1))])
        assert waiting(store) == [3, 1, 2]
        store.write([AcknowledgeNote(1, note(1).id), AcknowledgeNote(1, note(99).id)])
        store.write([AddNote(1, note(1))])
        assert waiting(store) == [3, 2]
        assert waiting(store, 2) == [1]
        assert waiting(store, 9) == []
        [last] = store.unread(1, after=store.unread(1, limit=1)[0].place)
        assert last.note == note(2)


def test_a_full_subscription_refuses_and_others_do_not(disk: Path) -> None:
    with opened(disk, unread=3) as store:
        store.write([AddSubscription(1, b"a"), AddSubscription(2, b"b")])
        refused = store.write([AddNote(1, note(number)) for number in range(5)])
        assert refused == [note(3).id, note(4).id]
        assert store.write([AddNote(1, note(0)), AddNote(2, note(4))]) == []
        store.write([AcknowledgeNote(1, note(0).id)])
        assert store.write([AddNote(1, note(4))]) == []
        assert waiting(store) == [1, 2, 4]


def test_the_memory_of_acknowledged_notes_is_bounded(disk: Path) -> None:
    with opened(disk, unread=100, remembered=5) as store:
        store.write([AddSubscription(1, b"a"), *(AddNote(1, note(number)) for number in range(20))])
        store.write([AcknowledgeNote(1, note(number).id) for number in range(20)])
        [(size,)] = store._database.read("SELECT sum(length(names)) FROM acknowledged")
        assert size == 5 * acknowledged_notes.SIZE + OVERHEAD
        store.write([AddNote(1, note(number)) for number in range(20)])
        assert waiting(store) == list(range(15)), "the last five are known"


changes = st.one_of(
    st.builds(lambda n: AddNote(1, note(n)), st.integers(0, 5)),
    st.builds(lambda n: AcknowledgeNote(1, note(n).id), st.integers(0, 5)),
)


@given(batches=st.lists(st.lists(changes, max_size=6), max_size=6))
def test_the_inbox_lists_unacknowledged_notes_without_repeats(
    batches: list[list[StoreChange]], disks: Callable[[], Path]
) -> None:
    came: dict[int, bool] = {}
    with opened(disks()) as store:
        store.write([AddSubscription(1, b"all")])
        for batch in batches:
            store.write(batch)
            for change in batch:
                match change:
                    case AddNote(_, arrived):
                        came.setdefault(int.from_bytes(arrived.id, "big"), True)
                    case AcknowledgeNote(_, name) if int.from_bytes(name, "big") in came:
                        came[int.from_bytes(name, "big")] = False
            assert waiting(store) == [number for number, waits in came.items() if waits]


# --- the disk -----------------------------------------------------------------------------------------------


def test_a_truncated_log_yields_the_last_commit_before_its_end(disk: Path) -> None:
    """The log is cut at every byte that matters: around each frame's edges, and within."""
    store = opened(disk / "whole")
    log = disk / "whole" / f"{FILE}-wal"
    lengths = [log.stat().st_size]
    for number in range(2, 8):
        store.write(
            [
                KeepRecord(number, b"x" * 3000),
                KeepRecord(1, b"%d" % number),
                *([ForgetRecord(number - 1)] if number > 3 else []),
            ]
        )
        lengths.append(log.stat().st_size)
    data = log.read_bytes()
    states = {}
    # The log is a head of 32 bytes and frames of 24 bytes and a page. Each frame is cut at its edges, in its head, and
    # in the middle of its page.
    edges = range(32, len(data) + 1, 24 + 4096)
    assert edges[-1] == len(data)
    cuts = {edge + slack for edge in edges for slack in (-2048, -1, 0, 1, 23, 24)}
    for length in sorted({0, *(cut for cut in cuts if 0 <= cut <= len(data))}):
        cut = disk / "cut"
        cut.mkdir(mode=0o700)
        shutil.copy(disk / "whole" / FILE, cut / FILE)
        (cut / f"{FILE}-wal").write_bytes(data[:length])
        with opened(cut) as found:
            states[length] = found.unsettled_records()
        shutil.rmtree(cut)
    store.close()
    for length, state in states.items():
        committed = sum(edge <= length for edge in lengths) - 1
        if committed <= 0:
            assert state == {}
        else:
            assert state.pop(1) == b"%d" % (committed + 1)
            assert list(state) == ([2] if committed == 1 else [2, committed + 1])


def test_without_the_keyring_the_disk_reveals_nothing(disk: Path) -> None:
    with opened(disk) as store:
        store.write(
            [KeepRecord(1, PLANTED), AddSubscription(1, PLANTED), AddNote(1, note(1, PLANTED)), SaveValue("x", PLANTED)]
        )
        for file in disk.iterdir():
            assert PLANTED not in file.read_bytes()
            assert file.stat().st_mode & 0o077 == 0, file


def test_the_diskof_another_keyring_is_refused_and_not_touched(disk: Path) -> None:
    with opened(disk) as store:
        store.write([KeepRecord(1, b"x")])
    with pytest.raises(TamperedError, match="another keyring; name another directory"):
        opened(disk, Secret(b"z" * 32))
    with opened(disk) as store:
        assert store.unsettled_records() == {1: b"x"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE slots SET data = (SELECT data FROM slots WHERE slot = 1)",
        "DELETE FROM slots WHERE slot = 0",
        "DELETE FROM slots",
        "UPDATE acknowledged SET names = zeroblob(length(names))",
        "DELETE FROM acknowledged",
        "UPDATE acknowledged SET place = place + 1",
    ],
)
def test_a_change_on_the_disk_is_detected(statement: str, disk: Path) -> None:
    with opened(disk) as store:
        store.write([KeepRecord(1, b"x"), KeepRecord(2, b"y"), AddSubscription(1, b"all")])
    with sqlite3.connect(disk / FILE) as plain:
        plain.execute(statement)
    plain.close()
    with pytest.raises(TamperedError, match=r"damaged|missing"), opened(disk) as store:
        store.write([AddNote(1, note(1))])


def test_a_file_that_is_no_database_or_of_another_version_is_refused(disk: Path) -> None:
    (disk / "no").mkdir(mode=0o700)
    (disk / "no" / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="cannot be used"):
        opened(disk / "no")
    opened(disk / "later").close()
    with sqlite3.connect(disk / "later" / FILE) as plain:
        plain.execute("PRAGMA user_version = 99")
    plain.close()
    with pytest.raises(StorageError, match="version 99"):
        opened(disk / "later")


# --- whose it is --------------------------------------------------------------------------------------------


def test_a_second_start_on_the_same_directory_is_refused_in_one_line(disk: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from veilcast.crypto.secret import Secret; "
        "from veilcast.node.store import NodeStore\n"
        "try: NodeStore(Path(sys.argv[1]), Secret(b'k' * 32), bytes, unread_max=1, remembered_max=1)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    with opened(disk):
        command = [sys.executable, "-c", program, str(disk)]
        child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
        with pytest.raises(StorageError, match="in use by another node"):
            opened(disk)
    assert child.stdout.startswith(f"StorageError {disk} is in use by another node; stop that one first")
    assert child.stdout.count("\n") == 1
    opened(disk).close()


def test_a_directory_that_others_may_read_is_refused_with_the_next_step(disk: Path) -> None:
    state = disk / "state"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    with pytest.raises(PermissionsError, match=f"chmod 700 {state}"):
        opened(state)
    assert list(state.iterdir()) == []
    state.chmod(0o700)
    opened(state).close()


def test_a_directory_is_made_for_its_owner_alone(disk: Path) -> None:
    opened(disk / "a" / "state").close()
    assert (disk / "a" / "state").stat().st_mode & 0o777 == 0o700


def test_a_path_that_is_no_directory_is_refused(disk: Path) -> None:
    (disk / "file").write_text("")
    with pytest.raises(StorageError, match="is not a directory; name another"):
        opened(disk / "file")


# --- what version 1 has left --------------------------------------------------------------------------------


VERSION_1 = """
CREATE TABLE records (record INTEGER PRIMARY KEY, data BLOB NOT NULL, published INTEGER NOT NULL);
CREATE TABLE subscriptions (subscription INTEGER PRIMARY KEY AUTOINCREMENT, interest BLOB NOT NULL);
CREATE TABLE inbox (place INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL, note BLOB NOT NULL,
    publication BLOB NOT NULL, UNIQUE (subscription, note));
CREATE TABLE acknowledged (place INTEGER PRIMARY KEY AUTOINCREMENT, subscription INTEGER NOT NULL, note BLOB NOT NULL,
    UNIQUE (subscription, note));
CREATE TABLE state (name TEXT PRIMARY KEY, data BLOB NOT NULL);
PRAGMA user_version = 1;
"""


@cache
def name_of(number: int) -> bytes:
    return Random(f"id {number}").randbytes(16)


def write_version_1(directory: Path) -> None:
    """Two subscriptions, of which the second ended; two unread notifications, 400 acknowledged, and 400 deleted."""

    def sealed(data: bytes, context: str | bytes) -> bytes:
        bound = context if isinstance(context, bytes) else context.encode()
        return seal(derive(SECRET, b"vc/node-state"), data, context=bound, entropy=Random(context).randbytes)

    directory.mkdir(mode=0o700)
    (directory / FILE).touch(mode=0o600)
    with sqlite3.connect(directory / FILE, isolation_level=None) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("PRAGMA secure_delete = OFF")
        plain.executescript(VERSION_1)
        plain.execute("INSERT INTO state VALUES ('owner', ?)", (sealed(b"", "state owner"),))
        plain.execute("INSERT INTO state VALUES ('links', ?)", (sealed(b"keys", "state links"),))
        plain.execute("INSERT INTO records VALUES (1, ?, 0)", (sealed(b"anchors", "record 1"),))
        plain.execute("INSERT INTO records VALUES (3, ?, 1)", (sealed(b"waiting", "record 3"),))
        plain.execute("INSERT INTO subscriptions VALUES (2, ?)", (sealed(b"ended", "interest 2"),))
        plain.execute("DELETE FROM subscriptions")
        plain.execute("INSERT INTO subscriptions VALUES (1, ?)", (sealed(b"all", "interest 1"),))
        for number in range(800):
            plain.execute("INSERT INTO acknowledged (subscription, note) VALUES (1, ?)", (name_of(number),))
        plain.execute("DELETE FROM acknowledged WHERE place <= 400")
        for number in (801, 800):
            data = sealed(msgspec.msgpack.encode(note(number).publication), b"note " + name_of(number))
            plain.execute(
                "INSERT INTO inbox (subscription, note, publication) VALUES (1, ?, ?)", (name_of(number), data)
            )
    plain.close()


def ids_in_clear(directory: Path) -> set[int]:
    data = b"".join(file.read_bytes() for file in directory.iterdir())
    return {number for number in range(802) if name_of(number) in data}


def check_converted(directory: Path, remembered: int = 65_536) -> None:
    with opened(directory, remembered=remembered) as store:
        assert store.unsettled_records() == {1: b"anchors", 3: b"waiting"}
        assert store.unsettled_publications() == [3]
        assert (store.subscriptions(), store.last_subscription()) == ({1: b"all"}, 2)
        assert store.saved_value("links") == b"keys"
        assert [place.note.id for place in store.unread(1)] == [name_of(801), name_of(800)]
        store.write([AddNote(1, Note(name_of(number), note(1).publication)) for number in range(400, 800)])
        assert store.count_unread() == {1: 2}, "all that was acknowledged is known"
    assert not ids_in_clear(directory)


def test_the_state_of_version_1_is_converted_and_its_clear_ids_are_wiped(disk: Path) -> None:
    write_version_1(disk / "state")
    assert len(ids_in_clear(disk / "state")) > 402, "what was deleted is there too"
    check_converted(disk / "state")
    check_converted(disk / "state")


def test_the_state_of_version_1_under_another_keyring_is_refused_and_not_touched(disk: Path) -> None:
    write_version_1(disk / "state")
    with pytest.raises(TamperedError, match="another keyring"):
        opened(disk / "state", Secret(b"z" * 32))
    check_converted(disk / "state")


def test_clear_ids_of_version_1_are_overwritten_before_the_file_gets_shorter(disk: Path) -> None:
    """A file system does not overwrite what is cut off a file: a thief finds it in free blocks."""
    found: list[set[int]] = []

    class Watched(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if arguments[0] == "VACUUM":
                data = (disk / "state" / FILE).read_bytes()
                found.append({number for number in range(802) if name_of(number) in data})
            return super().execute(*arguments)

    write_version_1(disk / "state")
    with patch("veilcast.node.database.sqlite3.connect", partial(sqlite3.connect, factory=Watched)):
        opened(disk / "state", remembered=65_536).close()
    assert found[0] == set()


def test_a_conversion_that_is_killed_at_any_statement_is_done_at_the_next_start(disk: Path) -> None:
    """Each time the process ends between two statements: its files are taken as they are then."""
    copies: list[Path] = []

    class Watched(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            copies.append(disk / f"copy {len(copies)}")
            shutil.copytree(disk / "state", copies[-1])
            return super().execute(*arguments)

    write_version_1(disk / "state")
    connect = partial(sqlite3.connect, factory=Watched)
    with patch("veilcast.node.database.sqlite3.connect", connect):
        opened(disk / "state", remembered=1_024).close()
    assert len(copies) > 20
    for copy in copies[:: max(1, len(copies) // 12)]:
        copy.chmod(0o700)
        check_converted(copy, remembered=1_024)


# --- what a locked disk shows -------------------------------------------------------------------------------


def sizes(directory: Path) -> tuple[Any, ...]:
    with sqlite3.connect(directory / FILE) as plain:
        rows = plain.execute("SELECT length(data), count(*) FROM slots GROUP BY 1").fetchall()
        rows += plain.execute("SELECT length(names), count(*) FROM acknowledged GROUP BY 1").fetchall()
    plain.close()
    return rows, (directory / FILE).stat().st_size, sorted(file.name for file in directory.iterdir())


def test_a_disk_that_was_much_used_has_the_shape_of_an_empty_one(disk: Path) -> None:
    opened(disk / "empty", remembered=1000).close()
    with opened(disk / "used", unread=500, remembered=1000) as store:
        store.write([AddSubscription(number, b"interest") for number in range(1, 20)])
        for batch in range(30):
            store.write([KeepRecord(number, b"x" * 400, True) for number in range(batch, batch + 9)])
            store.write([AddNote(1, note(number)) for number in range(100 * batch, 100 * batch + 100)])
            store.write([AcknowledgeNote(1, note(number).id) for number in range(100 * batch, 100 * batch + 97)])
            store.write([ForgetRecord(number) for number in range(batch, batch + 9)])
        store.write([SaveValue("links", b"keys"), RemoveSubscription(3)])
        assert store.count_unread() == {1: 90}
    assert sizes(disk / "used") == sizes(disk / "empty")


def layout(directory: Path) -> tuple[Any, ...]:
    """Return the layout of the file without its rows: the number of free pages, and their positions in order."""
    data = (directory / FILE).read_bytes()
    page, trunk, free = int.from_bytes(data[16:18], "big"), int.from_bytes(data[32:36], "big"), []
    while trunk:
        words = [int.from_bytes(data[at : at + 4], "big") for at in range((trunk - 1) * page, trunk * page, 4)]
        free += [trunk, *words[2 : 2 + words[1]]]
        trunk = words[0]
    return len(data), int.from_bytes(data[24:28], "big"), int.from_bytes(data[36:40], "big"), free


def test_large_notifications_of_the_past_leave_no_trace_in_the_free_pages(disk: Path) -> None:
    opened(disk / "empty").close()
    with opened(disk / "used") as store:
        store.write([AddSubscription(1, b"all")])
        for number, body in enumerate((5_000, 30_000, 2_000, 5_000)):
            large = Note(note(number).id, Publication((), bytes(body)))
            store.write([AddNote(1, large)])
            store.write([AcknowledgeNote(1, large.id)])
    assert layout(disk / "used") == layout(disk / "empty")


def all_rows(directory: Path) -> dict[tuple[str, int], bytes]:
    plain = sqlite3.connect(directory / FILE)
    rows = {("slot", slot): data for slot, data in plain.execute("SELECT slot, data FROM slots")}
    rows |= {("acknowledged", place): data for place, data in plain.execute("SELECT place, names FROM acknowledged")}
    plain.close()
    return rows


@pytest.mark.parametrize("reads", [False, True])
def test_two_copies_of_a_disk_do_not_reveal_the_changes_between_them(disk: Path, reads: bool) -> None:
    lives = (NodeStore(disk, SECRET, Random(seed).randbytes, unread_max=10, remembered_max=999) for seed in range(3))
    with next(lives) as store:
        store.write([AddSubscription(1, b"all")])
    before = all_rows(disk)
    with next(lives) as store:
        if reads:
            store.write([AddNote(1, note(7))])
            store.write([AcknowledgeNote(1, note(7).id)])
    after = all_rows(disk)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values()), "a row that did not change was not sealed anew"
    with next(lives) as store:
        assert store.subscriptions() == {1: b"all"}
        store.write([AddNote(1, note(7))])
        assert len(waiting(store)) == (0 if reads else 1)


def test_a_backlog_shows_while_it_waits_and_no_longer_at_the_next_start(disk: Path) -> None:
    opened(disk / "empty").close()
    with opened(disk / "used", unread=9999) as store:
        store.write([AddSubscription(1, b"all"), *(AddNote(1, note(number)) for number in range(2000))])
    assert sizes(disk / "used")[0] != sizes(disk / "empty")[0]
    with opened(disk / "used", unread=9999) as store:
        assert len(waiting(store)) == 1000
        store.write([AcknowledgeNote(1, note(number).id) for number in range(2000)])
    opened(disk / "used").close()
    assert sizes(disk / "used")[0] == sizes(disk / "empty")[0], "the file stays as long as it was"


def test_another_number_of_remembered_ids_keeps_the_known_ones(disk: Path) -> None:
    with opened(disk, unread=999, remembered=500) as store:
        store.write([AddSubscription(1, b"all"), *(AddNote(1, note(number)) for number in range(100))])
        store.write([AcknowledgeNote(1, note(number).id) for number in range(100)])
    for remembered in (5000, 1000):
        with opened(disk, unread=999, remembered=remembered) as store:
            store.write([AddNote(1, note(number)) for number in range(100)])
            assert waiting(store) == []

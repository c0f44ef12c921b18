"""The store: what was written is there, all or nothing; it is one process's, and nobody else's to read."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import PermissionsError, StorageError, TamperedError
from veilcast.machine import Note, Publication
from veilcast.node.ledger import Forget, Keep
from veilcast.node.store import FILE, Acknowledge, Arrive, Change, Remember, Store, Subscribe, Unsubscribe

SECRET = Secret(b"k" * 32)
PLANTED = b"the planted topic"


def opened(directory: Path, secret: Secret = SECRET, unread: int = 10, remembered: int = 10) -> Store:
    return Store(directory, secret, Random(1).randbytes, unread_max=unread, remembered_max=remembered)


def note(number: int, body: bytes = b"body") -> Note:
    return Note(number.to_bytes(16, "big"), Publication((("topic", PLANTED.decode()),), body))


def waiting(store: Store, subscription: int = 1) -> list[int]:
    return [int.from_bytes(place.note.id, "big") for place in store.unread(subscription, limit=1000)]


# --- what is written ----------------------------------------------------------------------------------------


def test_what_was_written_is_there_in_the_next_life(disk: Path) -> None:
    with opened(disk / "state") as store:
        store.write([Keep(1, b"anchors"), Keep(2, b"x", True), Keep(3, b"y", True), Subscribe(1, b"all")])
        store.write([Forget(2), Keep(1, b"others"), Arrive(1, note(7)), Remember("links", b"keys")])
    with opened(disk / "state") as store:
        assert store.records() == {1: b"others", 3: b"y"}
        assert store.published() == [3]
        assert store.subscriptions() == {1: b"all"}
        assert [place.note for place in store.unread(1)] == [note(7)]
        assert store.count_unread() == {1: 1}
        assert store.remembered("links") == b"keys"
        assert store.remembered("others") is None


def test_changes_are_done_all_or_none(disk: Path) -> None:
    with opened(disk) as store:
        store.write([Subscribe(1, b"all")])
        with pytest.raises(StorageError):
            store.write([Keep(2, b"x"), Subscribe(1, b"the same number again")])
        assert store.records() == {}
        store.write([Keep(2, b"x")])
        assert store.records() == {2: b"x"}


def test_what_was_not_done_takes_no_room(disk: Path) -> None:
    with opened(disk, unread=2) as store:
        store.write([Subscribe(1, b"all"), Arrive(1, note(1))])
        with pytest.raises(StorageError):
            store.write([Arrive(1, note(2)), Subscribe(1, b"the same number again")])
        assert store.write([Arrive(1, note(3))]) == []
        assert store.write([Arrive(1, note(2))]) == [note(2).id]
    with opened(disk, unread=2) as store:
        assert store.write([Arrive(1, note(2)), Arrive(1, note(1))]) == [note(2).id]


def test_a_number_of_a_subscription_that_ended_is_known_for_ever(disk: Path) -> None:
    with opened(disk) as store:
        assert store.last_subscription() == 0
        store.write([Subscribe(1, b"a"), Subscribe(2, b"b"), Arrive(2, note(1)), Unsubscribe(2)])
        assert store.last_subscription() == 2
        assert waiting(store, 2) == []


# --- the inbox ----------------------------------------------------------------------------------------------


def test_a_note_waits_until_it_is_acknowledged_and_does_not_come_again(disk: Path) -> None:
    with opened(disk) as store:
        store.write([Subscribe(1, b"all"), Subscribe(2, b"all"), *(Arrive(1, note(number)) for number in (3, 1, 2))])
        store.write([Arrive(1, note(1)), Arrive(2, note(1)), Arrive(9, note(1))])
        assert waiting(store) == [3, 1, 2]
        store.write([Acknowledge(1, note(1).id), Acknowledge(1, note(99).id)])
        store.write([Arrive(1, note(1))])
        assert waiting(store) == [3, 2]
        assert waiting(store, 2) == [1]
        assert waiting(store, 9) == []
        [last] = store.unread(1, after=store.unread(1, limit=1)[0].place)
        assert last.note == note(2)


def test_a_full_subscription_refuses_and_others_do_not(disk: Path) -> None:
    with opened(disk, unread=3) as store:
        store.write([Subscribe(1, b"a"), Subscribe(2, b"b")])
        refused = store.write([Arrive(1, note(number)) for number in range(5)])
        assert refused == [note(3).id, note(4).id]
        assert store.write([Arrive(1, note(0)), Arrive(2, note(4))]) == []
        store.write([Acknowledge(1, note(0).id)])
        assert store.write([Arrive(1, note(4))]) == []
        assert waiting(store) == [1, 2, 4]


def test_the_memory_of_what_was_acknowledged_is_bounded(disk: Path) -> None:
    with opened(disk, unread=100, remembered=5) as store:
        store.write([Subscribe(1, b"a"), *(Arrive(1, note(number)) for number in range(20))])
        store.write([Acknowledge(1, note(number).id) for number in range(20)])
        [(count,)] = store._database._reader.execute("SELECT count(*) FROM acknowledged")
        assert count == 5
        store.write([Arrive(1, note(number)) for number in range(20)])
        assert waiting(store) == list(range(15)), "the last five are known"


changes = st.one_of(
    st.builds(lambda n: Arrive(1, note(n)), st.integers(0, 5)),
    st.builds(lambda n: Acknowledge(1, note(n).id), st.integers(0, 5)),
)


@given(batches=st.lists(st.lists(changes, max_size=6), max_size=6))
def test_the_inbox_is_a_list_without_repeats_of_what_came_and_was_not_acknowledged(
    batches: list[list[Change]], disks: Callable[[], Path]
) -> None:
    came: dict[int, bool] = {}
    with opened(disks()) as store:
        store.write([Subscribe(1, b"all")])
        for batch in batches:
            store.write(batch)
            for change in batch:
                match change:
                    case Arrive(_, arrived):
                        came.setdefault(int.from_bytes(arrived.id, "big"), True)
                    case Acknowledge(_, name) if int.from_bytes(name, "big") in came:
                        came[int.from_bytes(name, "big")] = False
            assert waiting(store) == [number for number, waits in came.items() if waits]


# --- the disk -----------------------------------------------------------------------------------------------


def test_a_log_that_ends_anywhere_gives_what_was_committed_before(disk: Path) -> None:
    """The log is cut at every byte that matters: around each frame's edges, and within."""
    store = opened(disk / "whole")
    log = disk / "whole" / f"{FILE}-wal"
    lengths = [log.stat().st_size]
    for number in range(2, 8):
        store.write([Keep(number, b"x" * 3000), Keep(1, b"%d" % number), *([Forget(number - 1)] if number > 3 else [])])
        lengths.append(log.stat().st_size)
    data = log.read_bytes()
    states = {}
    for length in sorted({max(0, edge + slack) for edge in range(0, len(data) + 1, 512) for slack in (-1, 0, 1)}):
        cut = disk / "cut"
        cut.mkdir(mode=0o700)
        shutil.copy(disk / "whole" / FILE, cut / FILE)
        (cut / f"{FILE}-wal").write_bytes(data[:length])
        with opened(cut) as found:
            states[length] = found.records()
        shutil.rmtree(cut)
    store.close()
    for length, state in states.items():
        committed = sum(edge <= length for edge in lengths) - 1
        if committed <= 0:
            assert state == {}
        else:
            assert state.pop(1) == b"%d" % (committed + 1)
            assert list(state) == ([2] if committed == 1 else [2, committed + 1])


def test_what_is_on_the_disk_tells_nothing_without_the_keyring(disk: Path) -> None:
    with opened(disk) as store:
        store.write([Keep(1, PLANTED), Subscribe(1, PLANTED), Arrive(1, note(1, PLANTED)), Remember("x", PLANTED)])
        for file in disk.iterdir():
            assert PLANTED not in file.read_bytes()
            assert file.stat().st_mode & 0o077 == 0, file


def test_the_diskof_another_keyring_is_refused_and_not_touched(disk: Path) -> None:
    with opened(disk) as store:
        store.write([Keep(1, b"x")])
    with pytest.raises(TamperedError, match="another keyring; name another directory"):
        opened(disk, Secret(b"z" * 32))
    with opened(disk) as store:
        assert store.records() == {1: b"x"}


def test_what_was_changed_on_the_disk_is_noticed(disk: Path) -> None:
    with opened(disk) as store:
        store.write([Keep(1, b"x"), Keep(2, b"y")])
    with sqlite3.connect(disk / FILE) as plain:
        plain.execute("UPDATE records SET data = (SELECT data FROM records WHERE record = 1)")
    plain.close()
    with opened(disk) as store, pytest.raises(TamperedError, match="damaged"):
        store.records()


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
        "from veilcast.node.store import Store\n"
        "try: Store(Path(sys.argv[1]), Secret(b'k' * 32), bytes, unread_max=1, remembered_max=1)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    with opened(disk):
        command = [sys.executable, "-c", program, str(disk)]
        child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
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


def test_what_is_no_directory_is_refused(disk: Path) -> None:
    (disk / "file").write_text("")
    with pytest.raises(StorageError, match="is not a directory; name another"):
        opened(disk / "file")

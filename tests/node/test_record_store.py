"""The record store: it keeps a machine's records for the next run, and only their owner can read them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from veilcast.crypto.secret import Secret
from veilcast.errors import StorageError, TamperedError
from veilcast.node.record_store import FILE, ForgetRecord, KeepRecord, RecordStore

SECRET = Secret(b"k" * 32)
PLANTED = b"the planted pseudonym"


def opened(directory: Path, secret: Secret = SECRET) -> RecordStore:
    return RecordStore.in_directory(directory, secret, Random(1).randbytes)


def test_the_next_run_receives_the_unsettled_records(disk: Path) -> None:
    with opened(disk) as ledger:
        ledger.write([KeepRecord(1, b"one"), KeepRecord(2, b"two"), KeepRecord(3, b"three")])
        ledger.write([ForgetRecord(2), KeepRecord(1, b"another one")])
    with opened(disk) as ledger:
        assert ledger.unsettled() == {1: b"another one", 3: b"three"}


def test_entries_are_done_all_or_none(disk: Path) -> None:
    with opened(disk) as ledger:
        ledger.write([KeepRecord(1, b"one")])
        with pytest.raises(TypeError):
            ledger.write([KeepRecord(2, b"two"), KeepRecord(3, "no bytes")])  # type: ignore[arg-type]
        assert ledger.unsettled() == {1: b"one"}
        ledger.write([KeepRecord(2, b"two")])
        assert ledger.unsettled() == {1: b"one", 2: b"two"}


def test_the_disk_reveals_nothing_without_the_keyring_and_another_keyring_is_refused(disk: Path) -> None:
    with opened(disk) as ledger:
        ledger.write([KeepRecord(1, PLANTED)])
    assert not [path for path in disk.iterdir() if PLANTED in path.read_bytes()]
    with pytest.raises(TamperedError, match="another keyring"):
        opened(disk, Secret(b"l" * 32))


def test_two_at_once_cannot_have_it(disk: Path) -> None:
    with opened(disk), pytest.raises(StorageError, match="in use"):
        opened(disk)
    assert (disk / FILE).stat().st_mode & 0o077 == 0

"""A full disk does not end a broker or a member: it is logged once, and the write is repeated until it succeeds."""

from __future__ import annotations

import logging

import pytest

from veilcast.cli.retrying_file_writer import RetryingFileWriter
from veilcast.errors import StorageError


def test_a_full_disk_is_reported_once_and_tried_again_until_it_has_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "veilcast.keeping")
    tries, full = list[bool](), True

    def keep() -> None:
        tries.append(full)
        if full:
            raise StorageError("cannot write overlay.signed: No space left on device")

    keeping = RetryingFileWriter(keep)
    for _ in range(3):
        keeping.save()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    full = False
    keeping.save()
    keeping.save()
    assert tries == [True, True, True, False, False]
    assert caplog.messages[1:] == ["the newer overlay is in its file now"]

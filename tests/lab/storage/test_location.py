"""A local directory does what a location promises: one winner, no half entries, durable files, one-line errors."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab.storage.location import LocalDirectory, StoredFile, parse_local, read_file


@pytest.fixture
def place(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path / "a place")


def test_files_are_listed_with_their_sizes_and_read_again(place: LocalDirectory) -> None:
    assert place.list_files("x") == []
    with place.open_new("x/y/data") as file:
        file.write(b"some")
        file.write(b"thing")
    assert place.create("x/entry", b"1")
    assert place.list_files("x") == [StoredFile("x/entry", 1), StoredFile("x/y/data", 9)]
    assert read_file(place, "x/y/data") == b"something"
    place.delete("x/entry")
    place.delete("x/entry")
    assert place.list_files("") == [StoredFile("x/y/data", 9)]


def test_of_many_that_create_an_entry_at_once_one_wins(place: LocalDirectory) -> None:
    start, won = threading.Barrier(8), list[int]()

    def create(number: int) -> None:
        start.wait()
        if place.create("log/entry", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read_file(place, "log/entry") == str(won[0]).encode()
    assert [file.name for file in place.list_files("")] == ["log/entry"]


def test_an_entry_has_its_name_only_when_it_is_whole_and_flushed(
    place: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []

    def flush(descriptor: int) -> None:
        flushed.append([file.name for file in place.list_files("") if file.name == "entry"])

    monkeypatch.setattr(os, "fsync", flush)
    assert place.create("entry", b"whole")
    # The bytes, the directory with the first name, and the directory with the second.
    assert flushed == [[], [], ["entry"]]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_is_refused_in_one_line(
    code: int, place: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(code, "")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match=r"makes no hard links .*; choose a directory on another$"):
        place.create("entry", b"x")
    assert place.list_files("") == []


def test_a_full_disk_is_told_with_the_file(place: LocalDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: place.create("entry", b"x"), place.open_new("data").close):
        with pytest.raises(StorageError, match=r"cannot write .*a place/.*: No space left on device"):
            write()
    assert [file.name for file in place.list_files("")] == ["data"]


def test_a_data_file_is_never_overwritten(place: LocalDirectory) -> None:
    place.open_new("data").close()
    with pytest.raises(StorageError, match=r"cannot write .*data: File exists"):
        place.open_new("data")
    with pytest.raises(StorageError, match=r"cannot read .*other: No such file"):
        place.open_file("other")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("results", "results"),
        ("/a/b", "/a/b"),
        ("file:/a/b%20c", "/a/b c"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a", "/a"),
        ("c:/users", "c:/users"),
        ("./s3a:/x", "./s3a:/x"),
        ("s3a://bucket/x", None),
        ("hdfs:/x", None),
    ],
)
def test_a_text_names_a_path_of_this_machine_or_another_file_system(text: str, path: str | None) -> None:
    assert parse_local(text) == (Path(path) if path is not None else None)


def test_a_file_uri_with_a_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="names a host"):
        parse_local("file://host/x")

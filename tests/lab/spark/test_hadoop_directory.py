"""A place on one of Hadoop's file systems does what a location promises, and what cannot be served is refused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from support.webhdfs_server import WebHdfs, webhdfs_server
from veilcast.errors import ConfigError, SparkError, StorageError, UnreachableError
from veilcast.lab.spark import hadoop_gateway
from veilcast.lab.spark.hadoop_directory import HadoopDirectory
from veilcast.lab.spark.hadoop_gateway import HadoopSettings
from veilcast.lab.spark.locations import LocationAddress, address_of, open_location
from veilcast.lab.spark.settings import SparkOptions
from veilcast.lab.storage.location import StoredFile, read_file

pytestmark = pytest.mark.all_only


@pytest.fixture
def store(spark: SparkSession) -> Iterator[WebHdfs]:
    with webhdfs_server() as store:
        yield store


@pytest.fixture
def place(store: WebHdfs) -> HadoopDirectory:
    return HadoopDirectory(f"{store.uri}/a place", HadoopSettings())


def test_files_are_listed_with_their_sizes_and_read_again(place: HadoopDirectory) -> None:
    large = bytes(range(256)) * 1024
    assert place.list_files("x") == []
    with place.open_new("x/experiment=y/data") as file:
        file.write(large[:1000])
        file.write(large[1000:])
    assert place.create("x/entry", b"1")
    assert place.list_files("x") == [StoredFile("x/entry", 1), StoredFile("x/experiment=y/data", len(large))]
    with place.open_file("x/experiment=y/data") as read:
        assert read.read() == large
        assert read.seek(-3, 2) == len(large) - 3
        assert read.read(10) == large[-3:]
        read.seek(1)
        assert read.read(len(large) - 2) == large[1:-1]
    place.delete("x/entry")
    place.delete("x/entry")
    assert [file.name for file in place.list_files("")] == ["x/experiment=y/data"]


def test_of_many_that_create_an_entry_at_once_one_wins(place: HadoopDirectory) -> None:
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


def test_nothing_is_renamed_or_overwritten(place: HadoopDirectory, store: WebHdfs) -> None:
    place.open_new("data").close()
    with pytest.raises(StorageError, match=r"^cannot write .*a place/data: .*already exists$"):
        place.open_new("data").close()
    assert {request.split()[0] for request in store.requests}.isdisjoint({"RENAME", "APPEND", "CONCAT", "TRUNCATE"})


def test_half_a_file_is_not_sent(place: HadoopDirectory, store: WebHdfs) -> None:
    def write() -> None:
        with place.open_new("data") as file:
            file.write(b"half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write()
    assert store.files == {}


def test_a_missing_file_is_told_in_one_line(place: HadoopDirectory) -> None:
    with pytest.raises(StorageError, match=r"^cannot read webhdfs://.*/other: No such file or directory$"):
        place.open_file("other")


def test_a_location_that_cannot_be_written_is_told_without_writing(store: WebHdfs) -> None:
    store.files = {"/file": b"", "/locked/file": b""}
    for path, reason in (("/file", "Not a directory"), ("/locked/new", "Permission denied: user=x")):
        with pytest.raises(StorageError, match=rf"^cannot write .*: {reason}$"):
            HadoopDirectory(f"{store.uri}{path}", HadoopSettings()).check_writable()
    HadoopDirectory(f"{store.uri}/new/deep", HadoopSettings()).check_writable()
    assert set(store.files) == {"/file", "/locked/file"}


def test_a_mount_of_viewfs_is_as_what_it_names(store: WebHdfs) -> None:
    store.files = {"/deep/there": b""}
    mounts = {"r": f"{store.uri}/deep", "here": "file:///tmp"}
    settings = HadoopSettings(tuple((f"fs.viewfs.mounttable.lab.link./{name}", uri) for name, uri in mounts.items()))
    mounted = HadoopDirectory("viewfs://lab/r/out", settings)
    mounted.check_writable()
    assert mounted.create("log/0", b"\n")
    assert not mounted.create("log/0", b"\n")
    assert mounted.list_files("log") == [StoredFile("log/0", 1)]
    assert store.files["/deep/out/log/0"] == b"\n"
    with pytest.raises(ConfigError, match="for file: does not decide between two writers"):
        HadoopDirectory("viewfs://lab/here/out", settings).check_writable()


def test_a_small_java_machine_that_dies_is_replaced(store: WebHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker, which has no Java machine of Spark's."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    first = HadoopDirectory(f"{store.uri}/x", HadoopSettings())
    assert first.create("log/0", b"\n")
    os.kill(hadoop_gateway.find_gateway().jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    with pytest.raises(SparkError, match="the Java machine that reaches Hadoop's file systems is gone"):
        first.list_files("")
    assert HadoopDirectory(f"{store.uri}/x", HadoopSettings()).list_files("") == [StoredFile("log/0", 1)]


class S3a:
    """The parts of Hadoop's S3A that `create` uses."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def hasPathCapability(self, _: object, name: str) -> bool:
        return name == "fs.option.create.conditional.overwrite"

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> S3a:
            self.asked.append((name, *given[-2:]))
            return self

        return call


def test_a_store_that_decides_when_a_file_is_closed_is_asked_to(
    place: HadoopDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3a()
    monkeypatch.setattr(place, "_system", store)
    assert place.create("log/0", b"\n")
    assert [asked for asked in store.asked if asked[0] != "createFile"] == [
        ("recursive",),
        ("overwrite", False),
        ("must", "fs.option.create.conditional.overwrite", "true"),
        ("build",),
        ("write", b"\n"),
        ("close",),
    ]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("s3a://bucket/x", r"--conf spark\.jars\.packages=org\.apache\.hadoop:hadoop-aws:[\d.]+ brings it$"),
        ("abfs://box@who.dfs.core.windows.net/x", r"packages=org\.apache\.hadoop:hadoop-azure:"),
        ("nosuch://bucket/x", "Spark has no file system for nosuch:$"),
        ("hdfs://127.0.0.1:1/x", "no server answers at 127.0.0.1:1: Connection refused$"),
        ("hdfs://127.0.0.1:port/x", "Port could not be cast to integer"),
        ("s3a://key:hunter2@bucket/x", "^s3a://bucket: a location must not hold a password$"),
        ("viewfs://nowhere/x", "Empty Mount table"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(place: str, told: str, spark: SparkSession) -> None:
    with pytest.raises((ConfigError, StorageError, UnreachableError), match=told) as caught:
        open_location(place)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_settings_travel_with_the_address_and_never_print(store: WebHdfs) -> None:
    options = SparkOptions((("spark.hadoop.fs.a", "1"),))
    settings = HadoopSettings((("fs.s3a.secret.key", "hunter2"),))
    address = address_of(HadoopDirectory(f"{store.uri}/x", settings))
    assert address == LocationAddress(f"{store.uri}/x", settings)
    assert "hunter2" not in repr(address)
    assert settings.hide_secrets("no hunter2 here") == "no ... here"
    with pytest.raises(ConfigError, match="a secret must not stand in a command") as caught:
        SparkOptions.parse(["spark.hadoop.fs.s3a.secret.key=hunter2"])
    assert "hunter2" not in str(caught.value)
    assert options.conf
    assert address.open().place == f"{store.uri}/x"

"""Captures and taps on a file system over the network give the cells of the same files here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap
from support.recorded_network import write_loud_network
from support.webhdfs_server import WebHdfs, webhdfs_server
from veilcast import lab
from veilcast.cli.main import main
from veilcast.errors import ConfigError, StorageError
from veilcast.lab import capture
from veilcast.lab.capture.data_source import SourceOptions
from veilcast.lab.capture.reading_report import ReadingReport
from veilcast.lab.capture.remote_files import find_records

pytestmark = pytest.mark.all_only

ORDER = [("t_us", "ascending"), ("src", "ascending"), ("size", "ascending")]


@pytest.fixture
def store(spark: SparkSession) -> Iterator[WebHdfs]:
    with webhdfs_server() as store:
        yield store


def copy_directory(store: WebHdfs, directory: Path, path: str) -> str:
    """Put the files of a directory there; the location of the copy."""
    for file in directory.rglob("*"):
        if file.is_file():
            store.files[f"{path}/{file.relative_to(directory).as_posix()}"] = file.read_bytes()
    return f"{store.uri}{path}"


def plain(report: ReadingReport, place: str) -> str:
    """The report without the place of the files."""
    return json.dumps(msgspec.to_builtins(report)).replace(place, "")


def record(directory: Path) -> None:
    sent = [
        SentPacket(
            START_US + 1000 * number, f"192.0.2.{number % 5}:4000", "192.0.2.9:4001", bytes([number % 251]) * 900
        )
        for number in range(400)
    ]
    packets = [(one.t_us, frame_packet(ip(one), 1)) for one in sent]
    file = Pcapng().interface(1)
    for t_us, data in packets[100:300]:
        file.enhanced(0, t_us, data)
    directory.mkdir()
    (directory / "a.pcap").write_bytes(pcap(packets[:200]))
    (directory / "b.pcapng").write_bytes(file.bytes)
    (directory / "c.pcap.gz").write_bytes(gzip.compress(pcap(packets[250:]), mtime=0))


@pytest.mark.parametrize("step", [1 << 14, 1 << 25])
def test_tasks_fetch_their_parts_of_captures(step: int, store: WebHdfs, spark: SparkSession, tmp_path: Path) -> None:
    record(tmp_path / "net")
    place = copy_directory(store, tmp_path / "net", "/net")
    here, told = capture.read([tmp_path / "net"], run="r", epoch_us=EPOCH_US, step=step)
    files = [find_records(place)]
    there, said = capture.read(files, run="r", epoch_us=EPOCH_US, step=step)
    frame, reported = capture.read(files, run="r", epoch_us=EPOCH_US, step=step, spark=spark)
    for found in (there, frame.toArrow().cast(here.schema)):
        assert found.sort_by(ORDER).equals(here.sort_by(ORDER))
    assert said == reported
    assert plain(said, place) == plain(told, str(tmp_path / "net"))
    assert len(here) == 400


def test_an_audit_of_taps_elsewhere_is_that_of_the_same_taps_here(
    store: WebHdfs, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taps = write_loud_network(tmp_path / "net")
    place = copy_directory(store, taps, "/taps")
    said = []
    for captures in (str(taps), place):
        assert main(["audit", captures, "--json"]) == 0
        said.append(capsys.readouterr().out.replace(captures, ""))
    assert said[0] == said[1]
    assert json.loads(said[0])["wire"]["cells"] > 100
    cells, _ = lab.captures(spark, place)
    assert not isinstance(cells, pa.Table)
    assert cells.count() == json.loads(said[0])["wire"]["cells"]


def test_a_missing_capture_is_told_in_one_line(store: WebHdfs) -> None:
    with pytest.raises(StorageError, match=rf"^cannot read {store.uri}/none: No such file or directory$"):
        lab.captures(None, f"{store.uri}/none")


def test_the_source_of_spark_refuses_locations() -> None:
    with pytest.raises(ConfigError, match=r"^hdfs://a/b: the format pcap reads files of executors"):
        SourceOptions.parse({"path": "hdfs://a/b"})

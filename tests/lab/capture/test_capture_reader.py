"""The reader: the same rows from Spark as without, and a report on the reading."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap, write_file
from veilcast.errors import ConfigError, TamperedError
from veilcast.lab import capture, tables
from veilcast.lab.spark import session
from veilcast.observe import CellRow, TableWriter
from veilcast.sim import scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = [("t_us", "ascending"), ("src", "ascending"), ("size", "ascending")]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as running:
        yield running


def traffic(count: int, seed: int, size: int = 1200) -> list[SentPacket]:
    rng = random.Random(seed)
    ends = [f"192.0.2.{number}:4000" for number in range(5)] + ["[2001:db8::1]:4000", "[2001:db8::2]:4000"]
    found = []
    for number in range(count):
        src, dst = rng.sample(ends[:5] if rng.random() < 0.7 else ends[5:], 2)
        found.append(SentPacket(START_US + 1000 * number, src, dst, rng.randbytes(size)))
    return found


def both(paths: list[Path], spark: SparkSession, step: int) -> tuple[pa.Table, capture.ReadingReport]:
    """The rows read with Spark, which must equal those read without."""
    table, notes = capture.read(paths, run="r", epoch_us=EPOCH_US, step=step)
    frame, told = capture.read(paths, run="r", epoch_us=EPOCH_US, step=step, spark=spark)
    assert frame.schema == tables.spark_schema(CellRow)
    assert table.schema == tables.arrow_schema(CellRow)
    assert told == notes
    found = frame.toArrow().cast(table.schema)
    assert found.sort_by(ORDER).equals(table.sort_by(ORDER))
    return table, notes


def test_spark_reads_the_same_from_captures_of_every_format(spark: SparkSession, tmp_path: Path) -> None:
    sent = traffic(600, 1)
    packets = [(one.t_us + 3_000_000, frame_packet(ip(one), 1)) for one in sent]
    file = Pcapng(big=True).interface(101, 9)
    for one in sent[100:500]:
        file.enhanced(0, one.t_us * 1000, ip(one))
    paths = [
        write_file(tmp_path, pcap(packets[:300]), "a.pcap"),
        write_file(tmp_path, gzip.compress(pcap(packets[250:])), "b.gz"),
        write_file(tmp_path, file.bytes, "c.pcapng"),
    ]
    table, notes = both(paths, spark, 100_000)
    assert sorted(table["t_us"].to_pylist()) == [one.t_us + 3_000_000 for one in sent]
    assert [clock.ahead_us for clock in notes.clocks] in ([0, -3_000_000], [3_000_000, -3_000_000])


def test_spark_reads_the_same_from_one_capture(spark: SparkSession, tmp_path: Path) -> None:
    sent = traffic(500, 2, size=300)
    path = write_file(tmp_path, pcap([(one.t_us, frame_packet(ip(one), 113)) for one in sent], 113)[:-5])
    table, notes = both([path], spark, 20_000)
    assert table.to_pylist() == tables.from_rows(CellRow, [one.cell() for one in sent[:-1]]).to_pylist()
    first, second, third = notes.lines()
    assert first == f"{path} (pcap): 499 cells of 499"
    assert second.startswith("  it is cut: its last ")
    assert third.startswith("nothing has the 1,200 bytes of a Veilcast cell")


def test_spark_reads_the_same_from_a_simulation(spark: SparkSession, tmp_path: Path) -> None:
    with TableWriter(tmp_path) as written:
        scenario.run_scenario(scenario.load_scenario("mesh-small"), 3, written)
    table, notes = both([tmp_path], spark, 200_000)
    assert len(table) > 100
    assert notes.files[0].format == "simulation"


def test_an_error_in_a_task_is_one_line_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    paths = [write_file(tmp_path, gzip.compress(b"nothing of the kind, " * 9), f"{name}.gz") for name in "ab"]
    with pytest.raises(
        TamperedError, match=r"[ab]\.gz is no capture: what is packed in it is neither pcap nor pcapng$"
    ):
        capture.read(paths, run="r", epoch_us=EPOCH_US, spark=spark)


def test_an_epoch_must_last(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an epoch of 0 microseconds"):
        capture.read([tmp_path], run="r", epoch_us=0)

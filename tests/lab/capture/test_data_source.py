"""The format `pcap` of Spark: the cells of `lab.captures` from a batch, and each of them once from a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.appended_records import NODES, expected, packed, tap_of, traffic
from support.capture_files import EPOCH_US, frame_packet, ip, pcap, write_file
from veilcast import lab
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import capture, tables
from veilcast.lab.capture.data_source import SourceOptions
from veilcast.lab.spark import SPARK_ERRORS, session, translate_error
from veilcast.observe import CellRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = str(EPOCH_US // 1_000_000)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as running:
        lab.register_sources(running)
        yield running


@pytest.mark.all_only
def test_a_batch_has_the_cells_of_lab_captures(spark: SparkSession, tmp_path: Path) -> None:
    """One capture; two captures with duplicates and clocks that differ; a directory of them; and taps."""
    sent = traffic(300)
    packets = [(one.t_us, frame_packet(ip(one), 1)) for one in sent]
    paths = [
        write_file(tmp_path, pcap(packets[:200]), "a.pcap"),
        write_file(tmp_path, pcap([(t_us + 2_000_000, data) for t_us, data in packets[150:]]), "b.pcap"),
    ]
    taps = [tmp_path / "taps" / str(number) for number in range(3)]
    for number, tap in enumerate(taps):
        tap.mkdir(parents=True)
        (tap / "cells.jsonl").write_bytes(tap_of(NODES[number], sent))
    for given in (paths[:1], paths, taps):
        table, _ = capture.read(given, run="r", epoch_us=EPOCH_US)
        source = spark.read.format("pcap").option("run", "r").option("epoch", EPOCH)
        frame = source.load(str(given[0]) if len(given) == 1 else [*map(str, given)])
        assert frame.schema == tables.spark_schema(CellRow)
        assert sorted(map(tuple, frame.collect())) == sorted(tuple(row.values()) for row in table.to_pylist())
    every: list[str | list[str]] = [str(taps[0].parent), [str(tap) for tap in taps]]
    assert len({spark.read.format("pcap").load(place).count() for place in every}) == 1


@pytest.mark.all_only
def test_a_stream_has_each_cell_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    sent = traffic(400)
    whole, place = packed(sent), tmp_path / "captures"
    place.mkdir()
    frame = (
        spark.readStream.format("pcap")
        .options(run="r", epoch=EPOCH, max_bytes=20_000)
        .load(str(place))
        .writeStream.format("parquet")
    )
    for name, end in (("a.pcap", 30_001), ("a.pcap", 60_000), ("a.pcap", len(whole))):
        (place / name).write_bytes(whole[:end])
        query = frame.trigger(availableNow=True).start(
            str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint")
        )
        query.awaitTermination()
        assert all(batch["numInputRows"] <= 20_000 // 80 for batch in query.recentProgress)
    found = sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == sorted(expected(sent))


@pytest.mark.all_only
def test_errors_of_the_source_are_one_line_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    def error_of(place: Path, **options: str) -> Exception:
        with pytest.raises(SPARK_ERRORS) as caught:
            spark.read.format("pcap").options(**options).load(str(place)).count()
        return translate_error(caught.value)

    missing = error_of(tmp_path / "none.pcap")
    assert isinstance(missing, StorageError)
    assert str(missing) == f"cannot read {tmp_path}/none.pcap: No such file or directory"
    found = error_of(write_file(tmp_path, b"nothing"))
    assert isinstance(found, TamperedError)
    assert isinstance(error_of(tmp_path, port="x"), ConfigError)


@pytest.mark.all_only
def test_a_port_chooses_cells_with_that_port_at_one_end(spark: SparkSession, tmp_path: Path) -> None:
    sent = [*traffic(20), *(type(one)(one.t_us, "192.0.2.9:53", "192.0.2.8:14000") for one in traffic(5))]
    path = write_file(tmp_path, packed(sent))
    assert spark.read.format("pcap").load(str(path)).count() == 25
    assert spark.read.format("pcap").load(str(path), port="4000").count() == 20
    assert spark.read.format("pcap").load(str(path), port="53").count() == 5


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"path": "a", "ports": "1"}, "option ports: the format pcap has none of this name; it has run, epoch, port"),
        ({}, "no capture was given"),
        ({"path": "a", "epoch": "0"}, "option epoch: '0' is no number from 1e-06 to"),
        ({"path": "a", "epoch": "nan"}, "option epoch: 'nan' is no number"),
        ({"path": "a", "port": "65536"}, "option port: '65536' is no number from 1 to 65535"),
        ({"path": "a", "max_bytes": "64M"}, "option max_bytes: '64M' is no number"),
        ({"paths": "{}"}, "is no list of paths"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(given)
    assert reason in str(caught.value)


def test_options_are_read_whatever_their_case() -> None:
    found = SourceOptions.parse({"PATHS": '["a", "b"]', "Run": "x", "EPOCH": "1.5", "Port": "4000", "Max_Bytes": "9"})
    assert found == SourceOptions((Path("a"), Path("b")), "x", 1_500_000, 4000, 9)

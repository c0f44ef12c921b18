"""Captures and taps as a source of Spark: `spark.read.format("pcap")`, and `spark.readStream` for files that grow.

`lab.register_sources(spark)` makes the format known to a session. A path is a file, a directory of a tap, or a
directory with captures or taps below it; `load` also takes a list of them. The rows are those of `lab.captures`.
Options:

| option | default | meaning |
|---|---|---|
| `run` | capture | name in the column `run` |
| `epoch` | 3600 | length of the network's epochs, in seconds |
| `port` | all | only cells with this port at one end |
| `max_bytes` | 67108864 | stream alone: bytes of all files in one batch |

A batch is planned by one pass over the files, in the process that plans the query. If packets were seen in several
places, one task reads all files and folds the duplicates; `lab.captures` folds them by a shuffle.

A stream takes clocks as they are, and follows the files of `appended_files`. It refuses a capture that saw packets in
several places: a duplicate may come in a later batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.capture import appended_files, reader, tasks
from veilcast.lab.capture.appended_files import Offset
from veilcast.lab.storage.location import parse_local
from veilcast.observe import CellRow


def register_sources(spark: SparkSession) -> None:
    """Make the format `pcap` known to a session."""
    spark.dataSource.register(CaptureSource)


class SourceOptions(msgspec.Struct, frozen=True):
    paths: tuple[Path, ...]
    run: str = "capture"
    epoch_us: int = 3_600_000_000
    port: int | None = None
    max_bytes: int = 1 << 26

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """From the texts of Spark's options."""
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name not in _OPTIONS:
                raise ConfigError(f"option {name}: the format {FORMAT} has none of this name; it has {_KNOWN}")
        paths = [options["path"]] if "path" in options else _PATHS.decode(options.get("paths", "[]"))
        if not paths:
            raise ConfigError(f"no capture was given: name files or directories in load(), of the format {FORMAT}")
        for path in paths:
            if parse_local(path) is None:
                raise ConfigError(f"{path}: the format {FORMAT} reads files of executors; lab.captures reads locations")
        number = partial(_number, options)
        return cls(
            tuple(parse_local(path) or Path(path) for path in paths),
            options.get("run", "capture"),
            round(number("epoch", float, 1e-6, 1e9, 3600.0) * 1_000_000),
            number("port", int, 1, 65_535, None),
            number("max_bytes", int, 1, 1 << 40, 1 << 26),
        )


class CaptureSource(DataSource):
    """The format `pcap`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return tables.spark_schema(CellRow)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _CaptureReader(SourceOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _TapReader(SourceOptions.parse(self.options))


class _CaptureReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        plan = reader.plan_reading(options.paths, options.run, options.epoch_us)
        if plan.marked:
            return [InputPartition((_whole_table, plan))]
        return [InputPartition((plan.work, part)) for part in plan.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_part(partition, self._options.port)


class _TapReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._last: Offset | None = None
        """Where a query of what is there now ends; None if the query follows the files."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxBytes(self._options.max_bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return appended_files.find_offset(self._options.paths, start, most, self._last)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._last = appended_files.find_offset(self._options.paths, {}, None)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        plan = appended_files.plan_between(start, end, self._options.run, self._options.epoch_us)
        return [InputPartition(each) for each in plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_part(partition, self._options.port)


def _whole_table(plan: tasks.ReadingPlan) -> Iterator[pa.Table]:
    yield plan.table()


def _read_part(partition: InputPartition, port: int | None) -> Iterator[pa.RecordBatch]:
    if partition.value is None:
        return
    work, part = partition.value
    for table in work(part):
        yield from (table if port is None else _at_port(table, port)).to_batches(max_chunksize=tasks.ROWS)


def _at_port(table: pa.Table, port: int) -> pa.Table:
    source, destination = (pc.ends_with(table[end], f":{port}") for end in ("src", "dst"))
    return table.filter(pc.or_(source, destination))


Number = TypeVar("Number", int, float)


def _number(
    options: Mapping[str, str], name: str, kind: Callable[[str], Number], least: float, most: float, default: Any
) -> Any:
    if name not in options:
        return default
    try:
        found = kind(options[name])
    except ValueError:
        found = None
    if found is None or not least <= found <= most:
        raise ConfigError(f"option {name}: {options[name]!r} is no number from {least:g} to {most:g}")
    return found


FORMAT: Final = "pcap"
_OPTIONS: Final = ("path", "paths", "run", "epoch", "port", "max_bytes")
_KNOWN: Final = ", ".join(_OPTIONS[2:])
_PATHS: Final = JsonDecoder(list[str], ConfigError, "is no list of paths")

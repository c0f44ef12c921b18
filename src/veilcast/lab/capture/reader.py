"""One reader for all records of a network: its cells, and a report on what was left out or corrected.

The input is captures (pcap, pcapng, packed or not), or directories of taps, of simulations, or of captures; the content
decides. All input is of one network: a packet seen in several places is one cell, and clocks are set by one another.

The reader goes over the files twice: once to count, to set clocks and to see whether packets were seen in several
places, and once to make the rows. On Spark the second pass happens when the rows are needed. Reading is quick beside
what is done with the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, overload

import pyarrow as pa

from veilcast import observe
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab.capture import file_spans, packet_captures, taps
from veilcast.lab.capture.reading_report import ReadingReport
from veilcast.lab.capture.remote_files import RecordPath
from veilcast.lab.capture.tasks import ReadingPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@overload
def read(
    paths: Sequence[RecordPath], *, run: str, epoch_us: int, step: int = ..., trusted: Collection[str] = ...
) -> tuple[pa.Table, ReadingReport]: ...
@overload
def read(
    paths: Sequence[RecordPath],
    *,
    run: str,
    epoch_us: int,
    step: int = ...,
    trusted: Collection[str] = ...,
    spark: SparkSession,
) -> tuple[DataFrame, ReadingReport]: ...
def read(
    paths: Sequence[RecordPath],
    *,
    run: str,
    epoch_us: int,
    step: int = file_spans.STEP,
    trusted: Collection[str] = (),
    spark: SparkSession | None = None,
) -> tuple[pa.Table | DataFrame, ReadingReport]:
    """The cells, as an Arrow table or, with a session, as a frame.

    `run` names captures and taps; simulations keep their own runs. Files are cut into parts of about `step` bytes, one
    task each. Clocks are set by packets between nodes of `trusted`, or, if it is empty, by all packets: a stranger that
    repeats a packet at another place and time would set them wrong.
    """
    plan = plan_reading(paths, run, epoch_us, step, frozenset(trusted), spark)
    return plan.table() if spark is None else plan.frame(spark), plan.report


def plan_reading(
    paths: Sequence[RecordPath],
    run: str,
    epoch_us: int,
    step: int = file_spans.STEP,
    trusted: frozenset[str] = frozenset(),
    spark: SparkSession | None = None,
) -> ReadingPlan:
    """The first pass over these files."""
    if not paths:
        raise ConfigError("no capture was given")
    if epoch_us < 1:
        raise ConfigError(f"an epoch of {epoch_us} microseconds cannot be")
    files = [file for path in paths for file in (_files_of_directory(path) if path.is_dir() else [path])]
    if len({file.resolve() for file in files}) < len(files):
        raise ConfigError("a file was given twice")
    is_table = [file_spans.detect_kind(file) == "table" for file in files]
    if any(is_table) and not all(is_table):
        raise ConfigError(f"{files[is_table.index(True)]} is a tap, and others are captures: packets would count twice")
    plan_files = taps.plan_taps if all(is_table) else packet_captures.plan_captures
    return plan_files(files, run, epoch_us, step, trusted, spark)


def find_record_files(directory: RecordPath) -> list[RecordPath]:
    """The tap or simulation of a directory; or else all captures in it, and all taps below it."""
    own = directory / CELLS_FILE
    try:
        if own.exists():
            return [own]
        captures = [each for each in sorted(directory.iterdir(), key=_parts) if each.is_file() and _is_capture(each)]
        return captures + sorted(directory.rglob(CELLS_FILE), key=_parts)
    except OSError as error:
        raise StorageError(f"cannot read {directory}: {error.strerror}") from error


def _files_of_directory(directory: RecordPath) -> list[RecordPath]:
    found = find_record_files(directory)
    if not found:
        raise StorageError(
            f"{directory} holds no {CELLS_FILE}, as a tap's or a simulation's directory does, and no capture"
        )
    return found


def _is_capture(file: RecordPath) -> bool:
    try:
        return file_spans.detect_kind(file) in ("capture", "packed")
    except TamperedError:
        return False


def _parts(file: RecordPath) -> list[str]:
    return str(file).split("/")


CELLS_FILE: Final = f"{observe.TABLE_OF[observe.CellRow]}.jsonl"

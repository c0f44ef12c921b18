"""One reader for all records of a network: its cells, and a report on what was left out or corrected.

The input is captures (pcap, pcapng, packed or not), or directories of taps, or of simulations; the content decides. All
input is of one network: a packet seen in several places is one cell, and clocks are set by one another.

The reader goes over the files twice: once to count, to set clocks and to see whether packets were seen in several
places, and once to make the rows. On Spark the second pass happens when the rows are needed. Reading is quick beside
what is done with the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.capture import file_spans, packet_captures, taps
from veilcast.lab.capture.reading_report import ReadingReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@overload
def read(
    paths: Sequence[Path], *, run: str, epoch_us: int, step: int = ..., trusted: Collection[str] = ...
) -> tuple[pa.Table, ReadingReport]: ...
@overload
def read(
    paths: Sequence[Path],
    *,
    run: str,
    epoch_us: int,
    step: int = ...,
    trusted: Collection[str] = ...,
    spark: SparkSession,
) -> tuple[DataFrame, ReadingReport]: ...
def read(
    paths: Sequence[Path],
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
    if not paths:
        raise ConfigError("no capture was given")
    if epoch_us < 1:
        raise ConfigError(f"an epoch of {epoch_us} microseconds cannot be")
    files = [taps.find_cells_file(path) if path.is_dir() else path for path in paths]
    if len({file.resolve() for file in files}) < len(files):
        raise ConfigError("a file was given twice")
    is_table = [file_spans.detect_kind(file) == "table" for file in files]
    if any(is_table) and not all(is_table):
        raise ConfigError(f"{paths[is_table.index(True)]} is a tap, and others are captures: packets would count twice")
    if all(is_table):
        return taps.read_taps(files, run, epoch_us, step, frozenset(trusted), spark)
    return packet_captures.read_captures(files, run, epoch_us, step, frozenset(trusted), spark)

"""One door to whatever was recorded of a network: its cells, and notes about what was left out or corrected.

Given are captures (pcap, pcapng, packed or not), or directories of taps, or those of simulations; what each is, its
content says. All that is given is of one network: packets that were seen in several places are one cell each, and
clocks are set by one another.

It goes over the files twice: once to count, to set clocks and to see whether anything was seen in several places; and
once to make the rows, which on Spark happens when they are asked for. Reading is quick beside what is done with rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.capture import captures, spans, taps
from veilcast.lab.capture.notes import Notes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@overload
def read(
    paths: Sequence[Path], *, run: str, epoch_us: int, step: int = ..., trusted: Collection[str] = ...
) -> tuple[pa.Table, Notes]: ...
@overload
def read(
    paths: Sequence[Path],
    *,
    run: str,
    epoch_us: int,
    step: int = ...,
    trusted: Collection[str] = ...,
    spark: SparkSession,
) -> tuple[DataFrame, Notes]: ...
def read(
    paths: Sequence[Path],
    *,
    run: str,
    epoch_us: int,
    step: int = spans.STEP,
    trusted: Collection[str] = (),
    spark: SparkSession | None = None,
) -> tuple[pa.Table | DataFrame, Notes]:
    """The cells, as an Arrow table or, with a session, as a frame.

    `run` names captures and taps; simulations keep their own runs. Files are cut into parts of about `step` bytes, each
    of which is a task. Clocks are set by packets between nodes of `trusted`, or, if it is empty, by all packets: a
    stranger who repeats a packet at another place and time would set them wrong.
    """
    if not paths:
        raise ConfigError("no capture was given")
    if epoch_us < 1:
        raise ConfigError(f"an epoch of {epoch_us} microseconds cannot be")
    files = [taps.cells_of(path) if path.is_dir() else path for path in paths]
    if len({file.resolve() for file in files}) < len(files):
        raise ConfigError("a file was given twice")
    is_table = [spans.kind_of(file) == "table" for file in files]
    if any(is_table) and not all(is_table):
        raise ConfigError(f"{paths[is_table.index(True)]} is a tap, and others are captures: packets would count twice")
    if all(is_table):
        return taps.read(files, run, epoch_us, step, frozenset(trusted), spark)
    return captures.read(files, run, epoch_us, step, frozenset(trusted), spark)

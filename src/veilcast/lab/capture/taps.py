"""Tables that nodes and simulations wrote themselves: `cells`, and whatever else stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from veilcast import observe
from veilcast.errors import ConfigError, StorageError
from veilcast.lab import tables
from veilcast.lab.capture import tap_lines, tap_owners, tasks
from veilcast.lab.capture.notes import FileNotes, Notes, about_sizes
from veilcast.lab.capture.tap_lines import Part
from veilcast.lab.capture.tap_owners import Tap, TapFindings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    files: Sequence[Path], run: str, epoch_us: int, step: int, trusted: frozenset[str], spark: SparkSession | None
) -> tuple[pa.Table | DataFrame, Notes]:
    """The cells of taps, as those of one run; or of simulations, with their own runs and epochs."""
    names = [str(file) for file in files]
    parts, damages = tasks.cut_all(files, partial(tap_lines.cut, step=min(step, tap_lines.STEP)))
    answers = tasks.ask(spark, parts, partial(tap_owners.examine, trusted=trusted), TapFindings)
    found = tap_owners.together(answers, len(files))
    for name, one in zip(names, found, strict=True):
        if not one.rows:
            raise ConfigError(f"{name} holds no whole row of a tap, and is no other capture")
    arranged, clocks = tap_owners.arrange(names, found)
    kinds = [f"tap of {tap.own}" for tap in arranged] if arranged else ["simulation"] * len(files)
    notes = Notes(
        tuple(
            FileNotes(name, kind, one.rows, one.rows, remarks=(damage,) if damage else ())
            for name, kind, one, damage in zip(names, kinds, found, damages, strict=True)
        ),
        tuple(clocks),
        about_sizes(sum(one.ours for one in found)),
    )
    work = partial(_cells, taps=arranged, run=run, epoch_us=epoch_us)
    if spark is not None:
        return tasks.frame(spark, parts, work, tables.spark_schema(observe.Cell)), notes
    return tasks.table(parts, work, tables.arrow_schema(observe.Cell)), notes


def table(directories: Sequence[Path], row: type[observe.Row]) -> pa.Table:
    """A table as all of these have it: `topology`, `presence`, `insiders`, `truth`; empty if none has it."""
    found = [tables.arrow_schema(row).empty_table()]
    for directory in directories:
        path = directory / f"{observe.TABLE_OF[row]}.jsonl"
        if path.exists():
            parts, _ = tap_lines.cut(path, 0, tap_lines.STEP)
            found += [tap_lines.to_table(tap_lines.rows(part, row), row) for part in parts]
    return pa.concat_tables(found)


def cells_of(path: Path) -> Path:
    """The file of cells in a directory."""
    file = path / f"{observe.TABLE_OF[observe.Cell]}.jsonl"
    if not file.exists():
        raise StorageError(f"{path} holds no {file.name}: it is no directory of a tap or a simulation")
    return file


def _cells(part: Part, taps: Sequence[Tap] | None, run: str, epoch_us: int) -> Iterator[pa.Table]:
    yield tap_owners.cells(part, taps[part.file] if taps else None, run, epoch_us)

"""Captures of one network, of any number of files, recorded at any number of places.

All spans are surveyed first. What is no capture of ours to read is refused then; clocks are set by what several files
saw; and only where packets can have been seen at several places do rows carry marks, and are folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.capture import clocks, merge, spans, survey, tasks
from veilcast.lab.capture.cells import Plan, cells
from veilcast.lab.capture.notes import FileNotes, Notes, about_sizes
from veilcast.lab.capture.packets import FIRST_FRAGMENT, REASONS
from veilcast.lab.capture.survey import Findings
from veilcast.observe import Cell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    files: Sequence[Path], run: str, epoch_us: int, step: int, trusted: frozenset[str], spark: SparkSession | None
) -> tuple[pa.Table | DataFrame, Notes]:
    names = [str(file) for file in files]
    parts, damages = tasks.cut_all(files, partial(spans.cut, step=step))
    every = _sampled(files) if len(files) > 1 else 0
    answers = tasks.ask(spark, parts, partial(survey.examine, step=step, every=every, trusted=trusted), Findings)
    found = survey.together(answers, len(files))
    for one, damage in zip(found, damages, strict=True):
        one.damage = one.damage or damage
    for name, one in zip(names, found, strict=True):
        _require_cells(name, one)
    seen = [one.sightings() for one in found]
    ahead, told = clocks.settle(
        names, lambda a, b: clocks.shared(seen[a], seen[b]), lambda a, b: clocks.by_marks(seen[a], seen[b])
    )
    several = len(files) > 1 or any(len(one.points) > 1 for one in found)
    notes = Notes(
        tuple(_about(*each, several=several) for each in zip(names, found, strict=True)),
        tuple(told),
        about_sizes(sum(one.ours for one in found)),
    )
    plan = Plan(run, epoch_us, step, tuple(ahead), several, trusted)
    work = partial(cells, plan=plan)
    if spark is None:
        table = tasks.table(parts, work, plan.schema)
        return merge.fold(table) if several else table, notes
    if not several:
        return tasks.frame(spark, parts, work, tables.spark_schema(Cell)), notes
    return merge.fold_frame(tasks.frame(spark, parts, work, merge.marked(tables.spark_schema(Cell)))), notes


def _sampled(files: Sequence[Path]) -> int:
    """One of how many packets is enough to set clocks by."""
    largest = max(file.stat().st_size for file in files)
    return 1 + largest // (_SAMPLE * _PACKET)


def _require_cells(name: str, found: Findings) -> None:
    if found.cells:
        return
    if not (packets := sum(found.reasons)):
        raise ConfigError(f"{name} holds no packets" + (f": {found.damage}" if found.damage else ""))
    most = max(range(len(REASONS)), key=found.reasons.__getitem__)
    told = f"of {packets:,} packets, {found.reasons[most]:,} are {REASONS[most]}"
    raise ConfigError(f"{name} holds no UDP or TCP traffic: {told}")


def _about(name: str, found: Findings, *, several: bool) -> FileNotes:
    remarks = [found.damage] if found.damage else []
    if links := ", ".join(str(link) for link in found.strange_links if link >= 0):
        remarks.append(f"link types that are not read: {links}")
    if fragments := found.reasons[FIRST_FRAGMENT]:
        remarks.append(f"{fragments:,} are {REASONS[FIRST_FRAGMENT]}")
    if found.untimed:
        remarks.append(f"{found.untimed:,} have no time, and stand at 0")
    if several and found.unmarked:
        remarks.append(f"{found.unmarked:,} are cut too short to be known again where they were seen twice")
    left_out = {
        reason: count
        for number, (reason, count) in enumerate(zip(REASONS, found.reasons, strict=True))
        if count and number > FIRST_FRAGMENT
    }
    return FileNotes(name, found.format, sum(found.reasons), found.cells, left_out, tuple(remarks))


_SAMPLE: Final = 20_000
_PACKET: Final = 128
"""How many bytes a packet has at least, about."""

"""Captures of one network: any number of files, recorded at any number of places.

First all spans are surveyed: the number of packets of each kind, the places, and a sample to set clocks by. The sample
takes packets by their mark, so it takes the same packets in every file, however files were cut. Unreadable captures are
refused then, and clocks are set by packets that several files hold. Only if packets can have been seen in several
places do rows carry marks, and duplicates are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.capture import clocks, endpoints, file_spans, tasks
from veilcast.lab.capture.clocks import Sightings
from veilcast.lab.capture.duplicates import MARK, POINT
from veilcast.lab.capture.file_spans import CaptureSpan, Pieces
from veilcast.lab.capture.packets import FIRST_FRAGMENT, REASONS, UNKNOWN_LINK, dissect
from veilcast.lab.capture.reading_report import FileReport, ReadingReport, remark_sizes
from veilcast.lab.capture.remote_files import RecordPath
from veilcast.lab.capture.tasks import ReadingPlan
from veilcast.observe import CellRow
from veilcast.wire.geometry import CELL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CellPlan(msgspec.Struct, frozen=True):
    """How packets become rows."""

    run: str
    epoch_us: int
    step: int
    ahead_us: tuple[int, ...]
    """How far its clock is ahead, in microseconds, by file."""
    marked: bool
    """Whether rows have the columns that `duplicates` needs."""
    trusted: frozenset[str] = frozenset()
    """Nodes whose packets no other packet stands for; empty if all nodes are treated alike."""

    @property
    def schema(self) -> pa.Schema:
        schema = tables.arrow_schema(CellRow)
        for name in (MARK, POINT) if self.marked else ():
            schema = schema.append(pa.field(name, pa.int64(), nullable=False))
        return schema


def make_cells(span: CaptureSpan, plan: CellPlan) -> Iterator[pa.Table]:
    """Tables of cells, piece by piece, in the order of the capture."""
    for piece in Pieces(span, plan.step):
        seen = dissect(piece.data, piece.packets)
        kept = np.flatnonzero(seen.reason <= FIRST_FRAGMENT)
        t_us = piece.packets.t_us[kept]
        # A packet without a time stays at 0.
        t_us -= np.where(t_us > 0, plan.ahead_us[span.file], 0)
        source, destination = endpoints.name_endpoints(seen.ends[kept])
        columns = [
            pa.repeat(pa.scalar(plan.run), len(kept)),
            pa.array(t_us // plan.epoch_us),
            pa.array(t_us),
            source,
            destination,
            pa.array(seen.size[kept]),
        ]
        if plan.marked:
            mark = seen.mark[kept]
            if plan.trusted:
                # A mark is public, and odd. A stranger's packet that imitates a member's mark gets an even one.
                mark = np.where(endpoints.are_between(seen.ends[kept], plan.trusted), mark, mark & ~1)
            columns += [pa.array(mark), pa.array(seen.point[kept] + (span.file << _FILE))]
        yield pa.table(columns, plan.schema)


class SpanFindings(msgspec.Struct):
    """Findings of one span, or of a whole file; small enough to send."""

    file: int
    format: str = ""
    reasons: list[int] = msgspec.field(default_factory=lambda: [0] * len(REASONS))
    """Number of packets by reason."""
    ours: int = 0
    """Number of packets as long as a Veilcast cell."""
    untimed: int = 0
    unmarked: int = 0
    points: list[int] = []
    strange_links: list[int] = []
    sample: list[bytes] = []
    """Columns of `Sightings`."""
    damage: str | None = None

    @property
    def cells(self) -> int:
        return sum(self.reasons[: FIRST_FRAGMENT + 1])

    def sightings(self) -> Sightings:
        kinds = (np.int64, np.int64, np.uint64, np.bool_)
        columns = self.sample or [b""] * len(kinds)
        return Sightings(*(np.frombuffer(each, kind) for each, kind in zip(columns, kinds, strict=True))).once()


def survey_span(span: CaptureSpan, step: int, every: int, trusted: frozenset[str] = frozenset()) -> SpanFindings:
    """One of `every` marks is in the sample; none if it is 0. If any nodes are `trusted`, the sample holds only packets
    between those."""
    found = SpanFindings(span.file)
    pieces = Pieces(span, step)
    for piece in pieces:
        packets, seen = piece.packets, dissect(piece.data, piece.packets)
        cells = seen.reason <= FIRST_FRAGMENT
        part = SpanFindings(
            span.file,
            piece.layout.format,
            np.bincount(seen.reason, minlength=len(REASONS)).tolist(),
            int(np.count_nonzero(cells & (seen.size == CELL))),
            int(np.count_nonzero(cells & (packets.t_us == 0))),
            int(np.count_nonzero(cells & (seen.mark == 0))),
            np.unique(seen.point[cells])[:POINTS_MAX].tolist(),
            np.unique(packets.link[seen.reason == UNKNOWN_LINK])[:POINTS_MAX].tolist(),
        )
        if every:
            taken = cells & (seen.mark != 0) & (packets.t_us > 0) & (seen.mark // 2 % every == 0)
            if trusted:
                taken[taken] = endpoints.are_between(seen.ends[taken], trusted)
            link, forward = endpoints.number_links(seen.ends[taken])
            columns = (seen.mark[taken], packets.t_us[taken], link, forward)
            part.sample = [column.tobytes() for column in columns]
        found = _join_findings([found, part])
    found.damage = pieces.damage
    return found


def merge_findings(parts: Sequence[SpanFindings], files: int) -> list[SpanFindings]:
    """The findings of all spans, by file."""
    return [
        _join_findings([SpanFindings(file), *(part for part in parts if part.file == file)]) for file in range(files)
    ]


def plan_captures(
    files: Sequence[RecordPath], run: str, epoch_us: int, step: int, trusted: frozenset[str], spark: SparkSession | None
) -> ReadingPlan:
    names = [str(file) for file in files]
    parts, damages = tasks.cut_all(files, partial(file_spans.cut_spans, step=step))
    every = _sample_every(files) if len(files) > 1 else 0
    answers = tasks.run_jobs(spark, parts, partial(survey_span, step=step, every=every, trusted=trusted), SpanFindings)
    found = merge_findings(answers, len(files))
    for one, damage in zip(found, damages, strict=True):
        one.damage = one.damage or damage
    for name, one in zip(names, found, strict=True):
        _require_cells(name, one)
    seen = [one.sightings() for one in found]
    ahead, told = clocks.set_clocks(
        names,
        lambda a, b: clocks.count_shared(seen[a], seen[b]),
        lambda a, b: clocks.compare_by_marks(seen[a], seen[b]),
    )
    several = len(files) > 1 or any(len(one.points) > 1 for one in found)
    notes = ReadingReport(
        tuple(_about(*each, several=several) for each in zip(names, found, strict=True)),
        tuple(told),
        remark_sizes(sum(one.ours for one in found)),
    )
    plan = CellPlan(run, epoch_us, step, tuple(ahead), several, trusted)
    return ReadingPlan(parts, partial(make_cells, plan=plan), marked=several, report=notes)


def _join_findings(parts: Sequence[SpanFindings]) -> SpanFindings:
    columns = [part.sample for part in parts if part.sample]
    return SpanFindings(
        parts[0].file,
        next((part.format for part in parts if part.format), ""),
        np.sum([part.reasons for part in parts], axis=0).tolist(),
        sum(part.ours for part in parts),
        sum(part.untimed for part in parts),
        sum(part.unmarked for part in parts),
        sorted({point for part in parts for point in part.points})[:POINTS_MAX],
        sorted({link for part in parts for link in part.strange_links})[:POINTS_MAX],
        [b"".join(several) for several in zip(*columns, strict=True)],
        next((part.damage for part in parts if part.damage), None),
    )


def _sample_every(files: Sequence[RecordPath]) -> int:
    """One of how many packets suffices to set clocks by."""
    largest = max(file.stat().st_size for file in files)
    return 1 + largest // (_SAMPLE * _PACKET)


def _require_cells(name: str, found: SpanFindings) -> None:
    if found.cells:
        return
    if not (packets := sum(found.reasons)):
        raise ConfigError(f"{name} holds no packets" + (f": {found.damage}" if found.damage else ""))
    most = max(range(len(REASONS)), key=found.reasons.__getitem__)
    told = f"of {packets:,} packets, {found.reasons[most]:,} are {REASONS[most]}"
    raise ConfigError(f"{name} holds no UDP or TCP traffic: {told}")


def _about(name: str, found: SpanFindings, *, several: bool) -> FileReport:
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
    return FileReport(name, found.format, sum(found.reasons), found.cells, left_out, tuple(remarks))


_FILE: Final = 48
"""Bit above a point's number at which the number of its file begins."""
POINTS_MAX: Final = 64
"""Places in one file that are told apart when they are counted."""
_SAMPLE: Final = 20_000
_PACKET: Final = 128
"""Approximate smallest size of a packet in a capture, in bytes."""

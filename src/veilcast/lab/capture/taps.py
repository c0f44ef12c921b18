"""Tables that nodes and simulations wrote themselves (`veilcast.observe.TableWriter`): `cells`, and others beside it.

The files are JSON lines, read in parts that are cut where a line ends. A writer that was stopped may leave an
incomplete last line; it is left out, and the report says so. A line that is no row of its table is an error that names
its position.

A simulation records every wire once. A node's tap records what this node sends and receives: its own address is in
every row, and that tells the two apart. Where both ends of a link have a tap, the sender's rows are what was on the
wire. The receiver's rows are left out for the time in which the sender's tap was running. So each datagram is one cell,
and so is one that was lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast import observe
from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.capture import clocks, tasks
from veilcast.lab.capture.clocks import Times
from veilcast.lab.capture.duplicates import WINDOW_US
from veilcast.lab.capture.reading_report import ClockCorrection, FileReport, ReadingReport, remark_sizes
from veilcast.lab.capture.remote_files import RecordPath
from veilcast.lab.capture.tasks import ReadingPlan
from veilcast.wire.geometry import CELL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TapPart(msgspec.Struct, frozen=True):
    """Whole lines of a file."""

    path: RecordPath
    file: int
    start: int
    end: int


def cut_lines(
    path: RecordPath, file: int, step: int, start: int = 0, end: int | None = None, *, only_first: bool = False
) -> tuple[list[TapPart], str | None]:
    """The parts of a file, of about `step` bytes each, and the damage at its end.

    Only the lines from `start` to `end` are cut, and only into the first part, if that is asked.
    """
    parts = []
    try:
        size = path.stat().st_size if end is None else end
        with path.open("rb") as lines:
            while size - start > step:
                lines.seek(start + step - 1)
                passed = lines.readline(LINE_MAX)
                if len(passed) == LINE_MAX:
                    raise TamperedError(f"{path} is no table: it has a line of {LINE_MAX:,} bytes or more")
                if not passed.endswith(b"\n"):
                    break
                parts.append(TapPart(path, file, start, lines.tell()))
                start = lines.tell()
                if only_first:
                    return parts, None
            lines.seek(start)
            rest = lines.read(min(step + LINE_MAX, size - start))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    whole = rest.rfind(b"\n") + 1
    if whole:
        parts.append(TapPart(path, file, start, start + whole))
    left = len(rest) - whole
    return parts, f"its last {left:,} bytes are no whole line" if left else None


def read_rows(part: TapPart, row: type[observe.ObservationRow]) -> list[tuple[Any, ...]]:
    """The rows of a part, as plain values in the order of the columns."""
    try:
        with part.path.open("rb") as file:
            file.seek(part.start)
            data = file.read(part.end - part.start)
    except OSError as error:
        raise StorageError(f"cannot read {part.path}: {error.strerror}") from error
    decoder = _decoder(row)
    try:
        return decoder.decode_lines(data)
    except TamperedError as error:
        at, reason = _wrong_line(data, decoder) or (0, str(error.__cause__))
        where = f"{part.path}, the line at byte {part.start + at:,},"
        raise TamperedError(f"{where} is no row of {observe.TABLE_OF[row]}: {reason}") from error


def rows_to_table(values: list[tuple[Any, ...]], row: type[observe.ObservationRow]) -> pa.Table:
    schema = tables.arrow_schema(row)
    columns = list(zip(*values, strict=True))
    if not columns:
        return schema.empty_table()
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


class TapFindings(msgspec.Struct):
    """Findings of one part, or of a whole file; small enough to send."""

    file: int
    rows: int = 0
    ours: int = 0
    own: list[str] | None = None
    """Addresses that are in all rows: one for a tap, two if it has one neighbour; None before any row is seen."""
    first_us: int = 1 << 62
    last_us: int = 0
    times: dict[str, dict[str, list[int]]] = {}
    """Times of the first cells, by source and destination."""


class NodeTap(msgspec.Struct, frozen=True):
    """One tap among others."""

    own: str
    ahead_us: int
    tapped: dict[str, tuple[int, int]] = {}
    """When the taps of other nodes were running, by address, in corrected time."""


def survey_tap(part: TapPart, trusted: frozenset[str] = frozenset()) -> TapFindings:
    """If any nodes are `trusted`, only times of links between those are kept: strangers cannot crowd them out."""
    found = TapFindings(part.file)
    for _, _, t_us, source, destination, size in read_rows(part, observe.CellRow):
        found.rows += 1
        found.ours += size == CELL
        found.first_us, found.last_us = min(found.first_us, t_us), max(found.last_us, t_us)
        if found.own is None:
            found.own = [source, destination]
        if found.own:
            if not (source in found.own and destination in found.own):
                found.own = [end for end in found.own if end in (source, destination)]
            if not trusted or (source in trusted and destination in trusted):
                remember_times(found.times, source, destination, [t_us])
    return _without_needless(found)


def merge_tap_findings(parts: Sequence[TapFindings], files: int) -> list[TapFindings]:
    """The findings of all parts, in order, by file."""
    found = [TapFindings(file) for file in range(files)]
    for part in parts:
        whole = found[part.file]
        whole.rows += part.rows
        whole.ours += part.ours
        if part.own is not None:
            whole.own = [end for end in part.own if whole.own is None or end in whole.own]
        whole.first_us, whole.last_us = min(whole.first_us, part.first_us), max(whole.last_us, part.last_us)
        for source, several in part.times.items():
            for destination, times in several.items():
                remember_times(whole.times, source, destination, times)
    return [_without_needless(one) for one in found]


def arrange_taps(
    paths: Sequence[str], found: Sequence[TapFindings]
) -> tuple[list[NodeTap] | None, list[ClockCorrection]]:
    """The node of each tap and its clock; None if these are records of whole networks."""
    whole = [not one.own for one in found]
    if all(whole):
        return None, []
    if any(whole):
        at = whole.index(True)
        raise ConfigError(f"{paths[at]} is no single node's tap, as others are; give taps, or records of networks")
    owners = _owners([one.own or [] for one in found])
    ahead, told = clocks.set_clocks(
        paths,
        lambda a, b: sum(min(map(len, way)) for way in _ways(found, owners, a, b)),
        lambda a, b: clocks.compare_by_rhythm(*_ways(found, owners, a, b)),
    )
    running: dict[str, tuple[int, int]] = {}
    for one, own, ahead_us in zip(found, owners, ahead, strict=True):
        first, last = running.get(own, (one.first_us - ahead_us, one.last_us - ahead_us))
        running[own] = min(first, one.first_us - ahead_us), max(last, one.last_us - ahead_us)
    taps = []
    for own, ahead_us in zip(owners, ahead, strict=True):
        taps.append(NodeTap(own, ahead_us, {other: times for other, times in running.items() if other != own}))
    return taps, told


def arrange_running(paths: Sequence[str], found: Sequence[TapFindings]) -> list[NodeTap | None]:
    """The node of each tap that is being written, and since when the others run; None for records of whole networks.
    Clocks stay as they are."""
    several = [(path, one) for path, one in zip(paths, found, strict=True) if one.own]
    owners = dict(zip((path for path, _ in several), _owners([one.own or [] for _, one in several]), strict=True))
    began: dict[str, int] = {}
    for path, one in several:
        began[owners[path]] = min(one.first_us, began.get(owners[path], one.first_us))
    running = {own: (since, _ENDLESS) for own, since in began.items()}
    return [
        NodeTap(owners[path], 0, {own: times for own, times in running.items() if own != owners[path]})
        if path in owners
        else None
        for path in paths
    ]


def tap_cells(part: TapPart, tap: NodeTap | None, run: str, epoch_us: int) -> pa.Table:
    """The cells of a part; those of a simulation unchanged, because they may be of several runs."""
    found = rows_to_table(read_rows(part, observe.CellRow), observe.CellRow)
    if tap is None:
        return found
    t_us = found["t_us"].to_numpy() - tap.ahead_us
    kept = np.flatnonzero(~_seen_elsewhere(found, t_us, tap))
    t_us = t_us[kept]
    found = found.take(pa.array(kept))
    columns = [pa.repeat(pa.scalar(run), len(kept)), pa.array(t_us // epoch_us), pa.array(t_us)]
    return pa.table([*columns, *(found[name] for name in ("src", "dst", "size"))], tables.arrow_schema(observe.CellRow))


def remember_times(times: dict[str, dict[str, list[int]]], source: str, destination: str, more: list[int]) -> None:
    several = times.get(source)
    if several is None:
        if len(times) >= ENDS_MAX:
            return
        several = times[source] = {}
    if destination not in several and len(several) >= ENDS_MAX:
        return
    known = several.setdefault(destination, [])
    known += more[: clocks.TIMES_MAX - len(known)]


def plan_taps(
    files: Sequence[RecordPath], run: str, epoch_us: int, step: int, trusted: frozenset[str], spark: SparkSession | None
) -> ReadingPlan:
    """The cells of taps, as those of one run; or of simulations, with their own runs and epochs."""
    names = [str(file) for file in files]
    parts, damages = tasks.cut_all(files, partial(cut_lines, step=min(step, TAP_STEP)))
    answers = tasks.run_jobs(spark, parts, partial(survey_tap, trusted=trusted), TapFindings)
    found = merge_tap_findings(answers, len(files))
    for name, one in zip(names, found, strict=True):
        if not one.rows:
            raise ConfigError(f"{name} holds no whole row of a tap, and is no other capture")
    arranged, clocks = arrange_taps(names, found)
    kinds = [f"tap of {tap.own}" for tap in arranged] if arranged else ["simulation"] * len(files)
    notes = ReadingReport(
        tuple(
            FileReport(name, kind, one.rows, one.rows, remarks=(damage,) if damage else ())
            for name, kind, one, damage in zip(names, kinds, found, damages, strict=True)
        ),
        tuple(clocks),
        remark_sizes(sum(one.ours for one in found)),
    )
    work = partial(_cells, taps=arranged, run=run, epoch_us=epoch_us)
    return ReadingPlan(parts, work, marked=False, report=notes)


def read_table(directories: Sequence[Path], row: type[observe.ObservationRow]) -> pa.Table:
    """A table as all of these directories have it: `topology`, `presence`, `insiders`, `truth`; empty if none
    has it."""
    found = [tables.arrow_schema(row).empty_table()]
    for directory in directories:
        path = directory / f"{observe.TABLE_OF[row]}.jsonl"
        if path.exists():
            parts, _ = cut_lines(path, 0, TAP_STEP)
            found += [rows_to_table(read_rows(part, row), row) for part in parts]
    return pa.concat_tables(found)


def _wrong_line(data: bytes, decoder: JsonDecoder[tuple[Any, ...]]) -> tuple[int, str] | None:
    at = 0
    for line in data.splitlines(keepends=True):
        try:
            decoder.decode(line)
        except TamperedError as error:
            return at, str(error.__cause__)
        at += len(line)
    return None


@cache
def _decoder(row: type[observe.ObservationRow]) -> JsonDecoder[tuple[Any, ...]]:
    kinds = tuple(_field_kind(field) for field in msgspec.structs.fields(row))
    return JsonDecoder(tuple.__class_getitem__(kinds), TamperedError, "is no row")


def _field_kind(field: msgspec.structs.FieldInfo) -> Any:
    if field.name == "t_us":
        return _TIME
    return _INT64 if field.type is int else field.type


def _seen_elsewhere(found: pa.Table, t_us: NDArray[np.int64], tap: NodeTap) -> NDArray[np.bool_]:
    """Mask of the rows that the sender's tap holds too; its last cells may have been under way when it ended."""
    sources = found["src"].combine_chunks().dictionary_encode()
    running = [tap.tapped.get(source, _NEVER) for source in sources.dictionary.to_pylist()]
    if not running:
        return np.zeros(len(t_us), np.bool_)
    since, until = (np.array(edge, np.int64)[sources.indices.to_numpy()] for edge in zip(*running, strict=True))
    elsewhere: NDArray[np.bool_] = (since <= t_us) & (t_us <= until + WINDOW_US)
    return elsewhere


def _without_needless(found: TapFindings) -> TapFindings:
    """No clock is set by the links of a whole network."""
    if not found.own:
        found.times = {}
    return found


def _owners(candidates: Sequence[list[str]]) -> list[str]:
    """A node with one neighbour could be either end of that link: then it is the end that no other tap belongs to."""
    taken = {own[0] for own in candidates if len(own) == 1}
    owners = []
    for own in candidates:
        owners.append(next((end for end in own if len(own) == 1 or end not in taken), own[0]))
        taken.add(owners[-1])
    return owners


def _ways(found: Sequence[TapFindings], owners: Sequence[str], a: int, b: int) -> tuple[Times, Times]:
    """When either tap saw the cells from the first to the second, and those back."""
    return _times(found[a], found[b], owners[a], owners[b]), _times(found[a], found[b], owners[b], owners[a])


def _times(first: TapFindings, second: TapFindings, source: str, destination: str) -> Times:
    seen = [np.array(each.times.get(source, {}).get(destination, []), np.int64) for each in (first, second)]
    return seen[0], seen[1]


def _cells(part: TapPart, taps: Sequence[NodeTap] | None, run: str, epoch_us: int) -> Iterator[pa.Table]:
    yield tap_cells(part, taps[part.file] if taps else None, run, epoch_us)


_TIME: Final = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
"""Differences of such times fit 64 bits."""
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
LINE_MAX: Final = 1 << 20
TAP_STEP: Final = 1 << 23
"""Largest part in bytes: as Python rows it is about thirty times as large."""
ENDS_MAX: Final = 1024
_NEVER: Final = (1, 0)
_ENDLESS: Final = 1 << 61

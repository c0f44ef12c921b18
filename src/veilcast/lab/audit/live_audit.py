"""An audit of traffic while it is recorded: Structured Streaming from taps and captures to the attackers' guesses.

1. The source `pcap` gives the cells of a batch. Each task reduces its part (`record_state.reduce_cells`), so mostly
   counts leave the tasks. No shuffle is needed, because counts add up.
2. This process merges them into the state, splits networks, and lets the attackers of the registry score nodes. At the
   end of a record their guesses are those of an audit of the same record. Known differences are in `remarks`.
3. A record ends with its window, when a later cell is `LATE_US` past its end, or when the state has more rows than its
   limit. Its last report is final, and its rows are forgotten.

With a checkpoint, the state of a batch is on the disk before Spark commits the batch. If a batch comes again after a
restart, it is not merged again.

An attacker whose state would grow with the length of a record is refused: volumes and activity have a row for each node
and each part of a heartbeat.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.record_state import (
    STATE,
    KeptReductions,
    RecordState,
    ReductionPlan,
    of_kind,
    reduce_cells,
)
from veilcast.lab.attack.registry import CADENCE, WAVES, Attacker, attackers_on
from veilcast.lab.audit import networks, reader
from veilcast.lab.audit.attacker_reports import AttackerReport, judge_attackers
from veilcast.lab.audit.operator_files import ListedMember, OverlayLink
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.observe import TopologyRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class LiveSettings(msgspec.Struct, frozen=True):
    epoch_us: int = 3_600_000_000
    window_us: int = 3_600_000_000
    """Length of a record; 0 for one record without end."""
    attackers: tuple[str, ...] | None = None
    """Names of attackers; None for all attackers that can work on a stream."""
    own: tuple[Attacker[CaptureObservations], ...] = ()
    """Attackers beside those of the package."""
    links: tuple[OverlayLink, ...] = ()
    members: tuple[ListedMember, ...] = ()
    only_listed: bool = False
    rows_max: int = 4_000_000
    """Rows of the state; a record that needs more ends."""
    batch_bytes: int = 1 << 28
    every_s: float = 5.0


class LiveReport(msgspec.Struct, frozen=True):
    """The knowledge of all attackers about one network of a record so far."""

    since_us: int
    """Begin of the record's window."""
    first_us: int
    last_us: int
    final: bool
    cells: int
    nodes: int
    links: int
    state_rows: int
    """Rows of the whole state, of all records and networks."""
    network: int
    networks: int
    attackers: tuple[AttackerReport, ...]
    """Reports by role, the most telling first."""
    remarks: tuple[str, ...] = ()

    def best(self, role: str) -> AttackerReport | None:
        """The most telling attacker on this role, if any says something."""
        return next((each for each in self.attackers if each.role == role and each.counts), None)


def choose_attackers(
    names: Collection[str] | None, own: Collection[Attacker[CaptureObservations]] = ()
) -> list[Attacker[CaptureObservations]]:
    """The attackers of these names that can work on a stream; without names, all of them. `own` are asked always.

    Raises `ConfigError` for a name of an attacker that cannot.
    """
    if names is not None:
        attackers_on(CaptureObservations, names, called="attack from outside")
    every = [*capture_job.choose_attackers(None, published=False, trained=False), *own]
    able = [each for each in every if capture_job.needed_parts([each]) <= _STREAMED]
    wanted = [*(names or ()), *(each.name for each in own)]
    for name in wanted:
        if all(each.name != name for each in able):
            raise ConfigError(
                f"{name} needs the whole record, and a stream keeps none; audit the record without --follow"
            )
    return [each for each in able if names is None or each.name in wanted]


class LiveAudit:
    """The state of an audit that goes on."""

    def __init__(self, settings: LiveSettings) -> None:
        self.settings = settings
        self.state = RecordState(settings.window_us)
        self.batch = -1
        """Number of the last batch that was merged."""
        self._chosen = choose_attackers(settings.attackers, settings.own)
        self._needs = capture_job.needed_parts(self._chosen)
        self._closed_us = 0
        """End of the last window that was closed: later cells of it are dropped."""
        self._late = 0

    @property
    def plan(self) -> ReductionPlan:
        return self.state.plan

    def merge(self, number: int, parts: pa.Table) -> list[LiveReport]:
        """Add a batch. Returns the final reports of the records that end, then those of the records that go on."""
        if number <= self.batch:
            return []
        self.batch = number
        window_us = self.settings.window_us
        if self._closed_us:
            in_time = pc.greater_equal(parts["since"], self._closed_us)
            late = parts.filter(pc.and_(pc.invert(in_time), pc.equal(parts["kind"], "links")))
            self._late += pc.sum(late["cells"]).as_py() or 0
            parts = parts.filter(in_time)
        self.state.merge(parts)
        for since in self.state.records:
            if len(self.state.rows) > self.settings.rows_max and since not in self.plan.settled:
                self.state.settle(since)
        found: list[LiveReport] = []
        latest_us = pc.max(self.state.rows["last_us"]).as_py() or 0
        for since in self.state.records:
            over = bool(window_us) and latest_us >= since + window_us + LATE_US
            full = len(self.state.rows) > self.settings.rows_max
            found += self._report(since, over or full, full)
            if over or full:
                self.state.close(since)
            if over:
                self._closed_us = max(self._closed_us, since + window_us)
        return sorted(found, key=lambda each: (not each.final, each.since_us, each.network))

    def kept(self) -> _KeptState:
        state = self.state
        return _KeptState(self.batch, state.plan, state.disordered, state.restarts, self._closed_us, self._late)

    def go_on(self, rows: pa.Table, kept: _KeptState) -> None:
        self.batch, self._closed_us, self._late = kept.batch, kept.closed_us, kept.late
        state = self.state
        state.rows, state.plan, state.disordered, state.restarts = rows, kept.plan, kept.disordered, kept.restarts

    def _report(self, since: int, final: bool, full: bool) -> Iterator[LiveReport]:
        rows, settings = self.state.record(since), self.settings
        links = of_kind(rows, "links")
        carried = (
            links.group_by(["src", "dst", "size"])
            .aggregate([("cells", "sum"), ("first_us", "min"), ("last_us", "max")])
            .rename_columns(["src", "dst", "size", "cells", "first", "last"])
        )
        listed = {member.node for member in settings.members}
        remarks = list(self._remarks(since, full))
        try:
            split = networks.split_networks(carried, settings.links, listed, only_listed=settings.only_listed)
        except ConfigError as error:
            # So early, nobody has answered yet.
            first, last = pc.min(carried["first"]).as_py(), pc.max(carried["last"]).as_py()
            cells = pc.sum(carried["cells"]).as_py()
            yield LiveReport(since, first, last, final, cells, 0, 0, len(self.state.rows), 0, 0, (), (str(error),))
            return
        remarks += split.left_out.doubts
        for number, network in enumerate(split.networks):
            own = networks.rows_within(carried, network)
            yield self._report_network(since, final, number, split.networks, own, rows, remarks)

    def _report_network(
        self,
        since: int,
        final: bool,
        number: int,
        found: Sequence[frozenset[str]],
        carried: pa.Table,
        rows: pa.Table,
        remarks: list[str],
    ) -> LiveReport:
        run, settings = f"network {number}", self.settings
        kept = KeptReductions(networks.rows_within(rows, found[number]), self.state, since, run, self._needs)
        chosen, told = self._chosen, list(remarks)
        if WAVES in self._needs and (size := kept.notification_size) in kept.blurred:
            told.append(f"cells of {size:,} bytes were dropped as usual and look like notifications now: {_WAIT}")
            chosen = [each for each in chosen if WAVES not in each.needs]
        observed = {"cells": carried}
        if settings.links:
            overlay = reader.list_overlay(run, found[number], settings.links, carried)
            observed["topology"] = tables.from_rows(TopologyRow, overlay)
        guesses = capture_job.guess_from_reduced(kept, observed, chosen, {})
        names, scores = reader.sort_guesses(guesses, run)
        return LiveReport(
            since,
            pc.min(carried["first"]).as_py(),
            pc.max(carried["last"]).as_py(),
            final,
            pc.sum(carried["cells"]).as_py(),
            len(names),
            len(carried.group_by(["src", "dst"]).aggregate([])),
            len(self.state.rows),
            number,
            len(found),
            judge_attackers(names, scores, settings.members),
            tuple(told),
        )

    def _remarks(self, since: int, full: bool) -> Iterator[str]:
        if full:
            yield f"the record ended early: its state has more than {self.settings.rows_max:,} rows"
        if count := self.state.disordered.get(since):
            yield f"cells of a link came {count:,} times out of order: the gaps there are not those of an audit"
        if self._late:
            yield f"{self._late:,} cells came after their record had ended, and are not counted"


def follow(
    spark: SparkSession,
    paths: Sequence[Path],
    settings: LiveSettings,
    emit: Callable[[LiveReport], object],
    *,
    checkpoint: Path | None = None,
    once: bool = False,
) -> None:
    """Follow taps and captures, and `emit` the reports of each batch, until the caller is interrupted.

    If `once` is true, the call reads the files as they are now, and returns. A later call with the same `checkpoint`
    goes on where this one ended.
    """
    from veilcast.lab.capture.data_source import register_sources

    register_sources(spark)
    audit = LiveAudit(settings)
    with _checkpoint_directory(checkpoint) as directory:
        state = directory / "state.parquet"
        load_state(audit, state)

        def on_batch(cells: DataFrame, number: int) -> None:
            reduce_part = partial(_reduce_batches, plan=audit.plan)
            parts = cells.mapInArrow(reduce_part, _STATE_COLUMNS).toArrow()
            reports = audit.merge(number, parts)
            if checkpoint is not None:
                save_state(audit, state)
            for report in reports:
                emit(report)

        source = spark.readStream.format("pcap").options(
            paths=json.dumps([str(path) for path in paths]),
            epoch=str(settings.epoch_us / 1_000_000),
            max_bytes=str(settings.batch_bytes),
        )
        writer = source.load().writeStream.foreachBatch(on_batch).option("checkpointLocation", str(directory / "spark"))
        writer = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{settings.every_s} seconds")
        )
        try:
            _await_end(writer.start())
        except SPARK_ERRORS as error:
            raise translate_error(error) from error


def _await_end(query: StreamingQuery) -> None:
    """Wait for the end of a query; Ctrl-C ends it.

    Another thread waits inside Java, so that this one can be interrupted between two calls of Java, not within one.
    """
    found: list[Exception] = []
    ended = threading.Event()

    def wait() -> None:
        try:
            query.awaitTermination()
        except SPARK_ERRORS as error:
            found.append(error)
        finally:
            ended.set()

    threading.Thread(target=wait, daemon=True).start()
    try:
        ended.wait()
    finally:
        query.stop()
    for error in found:
        raise error


def _reduce_batches(batches: Iterator[pa.RecordBatch], plan: ReductionPlan) -> Iterator[pa.RecordBatch]:
    given = list(batches)
    if given:
        yield from reduce_cells(pa.Table.from_batches(given), plan).to_batches()


class _KeptState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a checkpoint beside the rows."""

    batch: int
    plan: ReductionPlan
    disordered: dict[int, int]
    restarts: dict[int, int]
    closed_us: int
    late: int


@contextlib.contextmanager
def _checkpoint_directory(checkpoint: Path | None) -> Iterator[Path]:
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="veilcast-stream-", ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {checkpoint}: {error.strerror}") from error
    yield checkpoint


def save_state(audit: LiveAudit, file: Path) -> None:
    """Write the state; the file is whole at any time."""
    kept = msgspec.json.encode(audit.kept())
    part = file.with_suffix(".part")
    try:
        with part.open("wb") as written:
            pq.write_table(audit.state.rows.replace_schema_metadata({_KEPT: kept}), written, compression="zstd")
            written.flush()
            os.fsync(written.fileno())
        part.replace(file)
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror}") from error


def load_state(audit: LiveAudit, file: Path) -> None:
    """Go on from a state that was saved; from none if there is no file."""
    if not file.exists():
        return
    try:
        rows = pq.read_table(file)
        metadata = rows.schema.metadata or {}
        rows = rows.replace_schema_metadata(None).cast(STATE)
    except (OSError, pa.ArrowException) as error:
        raise TamperedError(f"{file} is no state of a live audit; begin with a new checkpoint") from error
    kept = _DECODER.decode(metadata.get(_KEPT, b""), str(file))
    if kept.plan.window_us != audit.settings.window_us:
        raise ConfigError(
            f"{file} is of records of {kept.plan.window_us / 1e6:g} s; give the same window, or a new checkpoint"
        )
    audit.go_on(rows, kept)


LATE_US: Final = 10_000_000
"""Time after the end of a window at which its record ends."""
_STREAMED: Final = frozenset({WAVES, CADENCE})
_WAIT: Final = "attackers on notifications wait for the next record"
_KEPT: Final = b"veilcast"
_STATE_COLUMNS: Final = ", ".join(
    f"{field.name} {'string' if field.type == pa.string() else 'bigint'}" for field in STATE
)
_DECODER: Final = JsonDecoder(_KeptState, TamperedError, "is no state of a live audit; begin with a new checkpoint")

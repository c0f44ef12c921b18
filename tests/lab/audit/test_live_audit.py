"""An audit while traffic is recorded: the guesses of an audit of the same record, from a state that stays bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.appended_records import lines
from support.capture_files import write_file
from support.recorded_network import PUBLISHER, READERS, make_probes, other_network, write_cells
from support.ring_traffic import BEAT_US, NODES, RING, cell, heartbeats, record_ring, sort_by_time
from veilcast.errors import ConfigError, TamperedError
from veilcast.lab import tables
from veilcast.lab.attack.observer import record_state
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.record_state import RecordState, of_kind, reduce_cells
from veilcast.lab.attack.registry import VOLUMES, WAVES, Attacker
from veilcast.lab.audit import live_audit, reader
from veilcast.lab.audit.live_audit import LATE_US, LiveAudit, LiveReport, LiveSettings, choose_attackers, follow
from veilcast.lab.audit.operator_files import ListedMember, OverlayLink
from veilcast.lab.spark import session
from veilcast.observe import CellRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH_US = 7_000_000
ENDLESS = LiveSettings(EPOCH_US, window_us=0)
Scores = dict[tuple[str, str, str], float]


def in_epochs(cells: Sequence[CellRow]) -> list[CellRow]:
    return [msgspec.structs.replace(one, epoch=one.t_us // EPOCH_US) for one in cells]


def in_batches(
    audit: LiveAudit, cells: Sequence[CellRow], batches: int, seed: int = 1
) -> Iterator[tuple[int, list[LiveReport]]]:
    """Cuts a record at random places; each batch has two parts, which come in the wrong order."""
    table = tables.from_rows(CellRow, in_epochs(cells))
    cuts = sorted(random.Random(seed).sample(range(1, len(table)), batches - 1))
    for number, (since, until) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
        middle = (since + until) // 2
        parts = [
            reduce_cells(table.slice(begin, end - begin), audit.plan)
            for begin, end in ((middle, until), (since, middle))
        ]
        yield number, audit.merge(number, pa.concat_tables(parts))


def follow_cells(cells: Sequence[CellRow], settings: LiveSettings = ENDLESS, batches: int = 9) -> list[LiveReport]:
    """The last reports of all batches."""
    return [found for _, found in in_batches(LiveAudit(settings), cells, batches)][-1]


def scores_of(report: LiveReport) -> Scores:
    return {
        (each.attack, each.role, suspect.node): suspect.score for each in report.attackers for suspect in each.suspects
    }


def audited_scores(
    directory: Path, cells: list[CellRow], links: Sequence[OverlayLink] = (), listed: Sequence[str] = ()
) -> list[Scores]:
    """The same of an audit, by network: the attackers that tell nodes apart, and work on a stream."""
    able = {(each.name, each.role) for each in choose_attackers(None)}
    seen = reader.observe([write_cells(directory, in_epochs(cells))], EPOCH_US, links, listed)
    return [
        {
            (each.attack, each.role, node): score
            for each in network.guesses
            for node, score in zip(network.nodes, each.whole.tolist(), strict=True)
            if (each.attack, each.role) in able and each.whole.min() < each.whole.max()
        }
        for network in seen.networks
    ]


@pytest.fixture(autouse=True)
def every_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports name all nodes, not only the first."""
    monkeypatch.setattr("veilcast.lab.audit.attacker_reports._SUSPECTS", 1_000)


@pytest.mark.parametrize("loaded", [0.0, 0.3])
@pytest.mark.parametrize("batches", [1, 6, 40])
def test_the_guesses_are_those_of_an_audit_however_a_record_is_cut(loaded: float, batches: int, tmp_path: Path) -> None:
    cells = record_ring(1, 20, loaded=loaded)[0]
    (report,) = follow_cells(cells, batches=batches)
    (expected,) = audited_scores(tmp_path / "net", cells)
    assert scores_of(report) == expected
    assert {attack for attack, _, _ in expected} >= {"cadence", "leaf", "closure", "flow-source"}
    assert (report.cells, report.nodes, report.links, report.remarks) == (len(cells), len(NODES), len(RING), ())


def test_a_network_that_hides_everything_gives_the_same_guesses(tmp_path: Path) -> None:
    cells = sort_by_time(heartbeats(Random(2), 20, 1200))
    (report,) = follow_cells(cells)
    assert scores_of(report) == audited_scores(tmp_path / "net", cells)[0]


def test_networks_and_strangers_are_told_apart_as_in_an_audit(tmp_path: Path) -> None:
    foreign = [*other_network(Random(4), 20, note=333), *make_probes(Random(5), 20, NODES)]
    cells = sort_by_time([*record_ring(1, 20)[0], *foreign])
    expected = audited_scores(tmp_path / "one", cells)
    reports = follow_cells(cells)
    assert [report.network for report in reports] == [0, 1]
    assert [scores_of(report) for report in reports] == expected
    assert any("send datagrams to a network and get none back" in remark for remark in reports[0].remarks)
    links = tuple(OverlayLink(NODES[u], NODES[v]) for u, v in RING if u < v)
    members = (*(ListedMember(node, "subscriber") for node in READERS), ListedMember(PUBLISHER, "publisher"))
    listed = msgspec.structs.replace(ENDLESS, links=links, members=members)
    (report,) = follow_cells(cells, listed)
    assert scores_of(report) == audited_scores(tmp_path / "two", cells, links, [each.node for each in members])[0]
    best = next(each for each in report.attackers if each.role == "subscriber")
    assert best.measures["auc"] > 0.9


def test_a_window_ends_its_record_and_late_cells_are_counted(tmp_path: Path) -> None:
    """Two windows of 20 s; a cell comes 25 s late."""
    cells = record_ring(1, 52)[0]
    windows = [[one for one in cells if one.t_us // 20_000_000 == number] for number in range(3)]
    late = cells[100]
    given = [*cells, late]
    audit = LiveAudit(msgspec.structs.replace(ENDLESS, window_us=20_000_000))
    reports = [each for _, found in in_batches(audit, given, 25) for each in found]
    finals = [report for report in reports if report.final]
    assert [report.since_us for report in finals] == [0, 20_000_000]
    for number, report in enumerate(finals):
        (expected,) = audited_scores(tmp_path / str(number), windows[number])
        assert scores_of(report) == expected
        assert report.cells == len(windows[number])
    assert audit.state.records == [40_000_000]
    assert reports[-1].remarks == ("1 cells came after their record had ended, and are not counted",)
    assert 20_000_000 + LATE_US < 52_000_000


def test_the_state_does_not_grow_with_the_number_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_state, "SAMPLE_US", 5_000_000)
    cells = sort_by_time(heartbeats(Random(2), 120, 1200))
    audit = LiveAudit(msgspec.structs.replace(ENDLESS, epoch_us=10**15, attackers=("cadence", "leaf")))
    rows = []
    table = tables.from_rows(CellRow, cells)
    for number in range(12):
        own = len(table) // 12
        audit.merge(number, reduce_cells(table.slice(number * own, own), audit.plan))
        state = audit.state.rows
        rows.append(len(state) - len(of_kind(state, "sample")))
    assert len(cells) > 2 * 10**4
    assert not len(of_kind(audit.state.rows, "copies"))
    # A row for the link, one for its edges; jitter of .3 ms gives two gaps of whole milliseconds, and three places.
    assert rows[-1] <= len(RING) * (1 + 1 + 3 + 3)
    assert rows[-1] <= rows[3] + len(RING)


def test_a_record_whose_state_is_full_ends_and_another_begins() -> None:
    """A stranger makes links and sizes without end."""
    rng = Random(3)
    flood = [
        CellRow(
            "r", 0, number * 1_000, f"10.1.{rng.randrange(200)}.1:{rng.randrange(9_999)}", NODES[0], rng.randrange(99)
        )
        for number in range(30_000)
    ]
    cells = sort_by_time([*heartbeats(Random(2), 30, 1200), *flood])
    audit = LiveAudit(msgspec.structs.replace(ENDLESS, rows_max=10_000))
    reports = []
    for _, found in in_batches(audit, cells, 60):
        reports += found
        assert len(audit.state.rows) <= 10_000
    ended = [report for report in reports if report.final]
    assert ended
    assert all(
        report.remarks[0].startswith("the record ended early: its state has more than 10,000") for report in ended
    )
    assert sum(report.cells for report in ended) < len(cells)


def test_a_size_that_was_usual_only_at_first_silences_the_attackers_on_notifications() -> None:
    """Cells of the notification's size on all links, for the first seconds."""
    early = [cell(BEAT_US * beat + 70_000 + 300 * src, src, dst, 444) for src, dst in RING for beat in range(48)]
    more = [f"10.0.0.{number}:4000" for number in range(1, 9)]
    later = [
        CellRow("r", 0, 9_000_000 + beat * BEAT_US, *ends, 80)
        for beat in range(80)
        for one in more
        for ends in ((one, NODES[0]), (NODES[0], one))
    ]
    (report,) = follow_cells(sort_by_time([*record_ring(1, 20)[0], *early, *later]), batches=40)
    assert any(" bytes were dropped as usual and look like notifications" in line for line in report.remarks)
    assert {each.attack for each in report.attackers} == {"cadence"}


def test_cells_out_of_order_are_reported() -> None:
    cells = record_ring(1, 20)[0]
    half = len(cells) // 2
    (report,) = follow_cells([*cells[half:], *cells[:half]], batches=2)
    assert any("times out of order: the gaps there are not those of an audit" in line for line in report.remarks)


def test_a_saved_state_goes_on_and_a_batch_that_comes_again_is_not_counted_twice(tmp_path: Path) -> None:
    cells = record_ring(1, 20)[0]
    table = tables.from_rows(CellRow, in_epochs(cells))
    file = tmp_path / "state.parquet"
    expected = follow_cells(cells, batches=4)[0]
    for number in range(4):
        audit = LiveAudit(ENDLESS)
        live_audit.load_state(audit, file)
        own = len(table) // 4 + 1
        part = reduce_cells(table.slice(number * own, own), audit.plan)
        reports = audit.merge(number, part)
        live_audit.save_state(audit, file)
        assert audit.merge(number, part) == []
    assert scores_of(reports[0]) == scores_of(expected)
    assert reports[0].cells == expected.cells == len(cells)
    with pytest.raises(ConfigError, match=r"is of records of 0 s; give the same window, or a new checkpoint"):
        live_audit.load_state(LiveAudit(LiveSettings()), file)
    for data in (file.read_bytes()[:-9], b""):
        file.write_bytes(data)
        with pytest.raises(TamperedError, match="is no state of a live audit; begin with a new checkpoint"):
            live_audit.load_state(LiveAudit(ENDLESS), file)
    pq.write_table(RecordState().rows, file)
    with pytest.raises(TamperedError, match="is no state of a live audit"):
        live_audit.load_state(LiveAudit(ENDLESS), file)


@pytest.mark.parametrize("name", ["flow-correlation", "disclosure", "least-squares"])
def test_an_attacker_of_whole_records_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} needs the whole record, and a stream keeps none"):
        choose_attackers([name])
    assert name not in {each.name for each in choose_attackers(None)}


def test_an_unknown_attacker_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no attack from outside is called 'lef'; there are leaf"):
        choose_attackers(["lef"])
    assert [each.name for each in choose_attackers(["leaf"])] == ["leaf"]


def test_attackers_of_ones_own_are_asked_too_if_they_need_no_whole_record() -> None:
    mine = Attacker(
        "mine", "subscriber", CaptureObservations, lambda seen: seen.graph.degrees.astype(np.float64), (WAVES,)
    )
    (report,) = follow_cells(record_ring(1, 20)[0], msgspec.structs.replace(ENDLESS, attackers=("leaf",), own=(mine,)))
    assert {each.attack for each in report.attackers} == {"leaf", "mine"}
    greedy = replace(mine, needs=(VOLUMES,))
    with pytest.raises(ConfigError, match=r"^mine needs the whole record"):
        choose_attackers(None, [greedy])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        yield started


@pytest.mark.all_only
def test_spark_follows_taps_to_the_guesses_of_an_audit(spark: SparkSession, tmp_path: Path) -> None:
    """In bounded batches, and over a restart from a checkpoint in the middle of the record."""
    cells = record_ring(1, 20)[0]
    (expected,) = audited_scores(tmp_path / "net", cells)
    place = tmp_path / "taps"
    place.mkdir()
    settings = msgspec.structs.replace(ENDLESS, batch_bytes=50_000)
    reports: list[LiveReport] = []
    whole = lines(in_epochs(cells))
    for end in (whole.index(b"\n", len(whole) // 2) + 3, len(whole)):
        write_file(place, whole[:end], "cells.jsonl")
        follow(spark, [place], settings, reports.append, checkpoint=tmp_path / "checkpoint", once=True)
    assert len(reports) > 5
    assert [report.cells for report in reports] == sorted({report.cells for report in reports})
    assert reports[-1].cells == len(cells)
    assert scores_of(reports[-1]) == expected


@pytest.mark.all_only
def test_an_error_of_a_followed_file_is_one_line_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a.pcapng cannot be followed: only taps and pcap files grow"):
        follow(
            spark,
            [write_file(tmp_path, b"\x0a\x0d\x0d\x0a" + bytes(40), "a.pcapng")],
            ENDLESS,
            lambda _: None,
            once=True,
        )

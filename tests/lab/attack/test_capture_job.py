"""The job of captures: on both engines the scores of plain arrays of the same cells, for any number of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.array_observer import find_notifications, observe_cells
from support.ring_traffic import BEAT_US, NODES, NOTE, RING, TREE, columns, record_ring
from support.watched_meshes import expect_nothing
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.classifiers import ClassifierPair, fit_binned, fit_linear
from veilcast.lab.attack.observer import capture_job, flow_job
from veilcast.lab.attack.observer.capture_job import guess_from_captures, observe_tables, part_name
from veilcast.lab.attack.observer.flow_correlation import FlowScores
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.reduced_cells import RecordParts, ReducedCells
from veilcast.lab.attack.registry import ACTIVITY, CADENCE, DEPARTURES, PUBLISHED, VOLUMES, WAVES, WINDOWS, attackers_on
from veilcast.lab.attack.table_engine import AnyTable, ArrowEngine
from veilcast.lab.measure.ranking import auc
from veilcast.observe import CellRow, FactRow, PublishedRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
Run = Mapping[str, list[CellRow]]
EVERYTHING = {WAVES, ACTIVITY, CADENCE, VOLUMES, DEPARTURES, WINDOWS}
READERS = np.isin(sorted(NODES), [NODES[2], NODES[9], NODES[1]])


@pytest.fixture(scope="module")
def runs() -> Run:
    """Records of one network: as it is; where heartbeats carry more now and then; and where all cells look alike. Times
    are of this century, where a double cannot hold a time in parts of a heartbeat."""
    plain, loaded = record_ring(1)[0], record_ring(3, loaded=0.3)[0]
    silent = [msgspec.structs.replace(cell, size=500) for cell in plain]
    made = {"plain": plain, "loaded": loaded, "silent": silent}
    return {
        run: [msgspec.structs.replace(cell, run=run, t_us=cell.t_us + 1_790_000_000_000_123) for cell in cells]
        for run, cells in made.items()
    }


@pytest.fixture(scope="module")
def observed(runs: Run) -> dict[str, pa.Table]:
    """Of the run with loads the observer knows when which topic was published."""
    times = [cell.t_us for cell in runs["loaded"] if cell.src == NODES[0] and cell.size == NOTE]
    told = [PublishedRow("loaded", "news" if place % 4 < 2 else "weather", t_us) for place, t_us in enumerate(times)]
    return {
        "cells": tables.from_rows(CellRow, [cell for cells in runs.values() for cell in cells]),
        "facts": tables.from_rows(FactRow, [FactRow(run, "heartbeat_us", BEAT_US) for run in runs]),
        "published": tables.from_rows(PublishedRow, told),
    }


@pytest.fixture(scope="module")
def trained() -> dict[str, ClassifierPair]:
    rng = np.random.default_rng(5)
    rows, known = rng.normal(size=(200, 54)), rng.random(200) < 0.3
    return dict.fromkeys(("subscriber", "publisher"), ClassifierPair(fit_linear(rows, known), fit_binned(rows, known)))


@pytest.fixture(scope="module")
def guessed(observed: dict[str, pa.Table], trained: dict[str, ClassifierPair]) -> Rows:
    found: Rows = guess_from_captures(observed, trained=trained).to_pylist()
    return found


def rows_of(table: AnyTable) -> Rows:
    found: Rows = (table if isinstance(table, pa.Table) else table.toArrow()).to_pylist()
    return found


def scores(guessed: Rows, run: str, attack: str, role: str = "subscriber", topic: str = "") -> dict[str, float]:
    kind = (run, attack, role, topic)
    return {row["node"]: row["score"] for row in guessed if tuple(map(row.get, _KIND)) == kind}


def best(guessed: Rows, attack: str, count: int, role: str = "subscriber") -> set[str]:
    found = scores(guessed, "plain", attack, role)
    return set(sorted(found, key=lambda node: -found[node])[:count])


def test_every_attacker_gives_the_scores_that_plain_arrays_give(
    guessed: Rows, runs: Run, observed: dict[str, pa.Table], trained: dict[str, ClassifierPair]
) -> None:
    """Exactly; features of windows are sums in another order."""
    told = observed["published"]
    topics = sorted(set(told["topic"].to_pylist()))
    for run, cells in runs.items():
        known = (told["t_us"].to_pylist(), [topics.index(name) for name in told["topic"].to_pylist()])
        names, seen = observe_cells(cells, BEAT_US, *(known if run == "loaded" else ()))
        seen = CaptureObservations(**{**vars(seen), "trained": trained})
        for attacker in attackers_on(CaptureObservations):
            if attacker.name == "disclosure" and attacker.role == "publisher":
                continue
            wanted = attacker.score_topics(seen)
            here = topics if run == "loaded" and len(wanted) == 2 else [""]
            for topic, row in zip(here, wanted, strict=True):
                found = scores(guessed, run, attacker.name, attacker.role, topic)
                assert sorted(found) == names
                if attacker.trained:
                    np.testing.assert_allclose([found[name] for name in names], row, rtol=1e-9)
                else:
                    assert [found[name] for name in names] == row.tolist(), (run, attacker.name)


@pytest.mark.all_only
def test_spark_gives_the_same_guesses_and_reads_every_cell_twice(
    spark: SparkSession, observed: dict[str, pa.Table], guessed: Rows, trained: dict[str, ClassifierPair]
) -> None:
    reads = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reads.add(batch.num_rows)
            yield batch

    frames = {name: spark.createDataFrame(table) for name, table in observed.items()}
    cells = frames["cells"].repartition(2).cache()
    frames["cells"] = cells.mapInArrow(count, cells.schema)
    found = guess_from_captures(frames, trained=trained).toArrow().to_pylist()
    assert sorted(found, key=_kind) == sorted(guessed, key=_kind)
    assert reads.value == 2 * len(observed["cells"])


def test_in_this_process_two_queries_read_the_cells(
    observed: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = []
    query = ArrowEngine.query

    def watch(self: ArrowEngine, sql: str, /, **inputs: pa.Table) -> pa.Table:
        reading.append(sql) if "cells" in inputs else None
        return query(self, sql, **inputs)

    monkeypatch.setattr(ArrowEngine, "query", watch)
    guess_from_captures(observed)
    assert len(reading) == 2
    reading.clear()
    guess_from_captures(observed, ["flow-correlation"])
    assert len(reading) == 1


def test_notifications_are_the_same_cells_by_rows_and_by_counts(runs: Run, observed: dict[str, pa.Table]) -> None:
    found = rows_of(ReducedCells(observed | {"published": observed["published"].slice(0, 0)}, {WAVES}).copies)
    for run, rows in runs.items():
        here = sorted((row["t_us"], row["src"], row["dst"]) for row in found if row["run"] == run)
        notes, _ = find_notifications(*columns(rows), BEAT_US)
        assert here == sorted((rows[place].t_us, rows[place].src, rows[place].dst) for place in notes)
        assert (len(notes) > 50) == (run != "silent")


def test_parts_of_a_record_are_scored_as_records_of_their_own(runs: Run, observed: dict[str, pa.Table]) -> None:
    """All but the size of notifications, which is that of the whole record."""
    cells = runs["plain"]
    first, length = min(cell.t_us for cell in cells), 5_000_000
    parts = tables.from_rows(RecordParts, [RecordParts("plain", first, length)])
    alone = {"cells": tables.from_rows(CellRow, cells), "facts": observed["facts"]}
    chosen = capture_job.choose_attackers(None, published=False, trained=False)
    reduced = ReducedCells(alone, capture_job.needed_parts(chosen), parts)
    found = capture_job.guess_from_reduced(reduced, alone, chosen, {}).to_pylist()
    assert {row["run"] for row in found} == {"plain", part_name("plain", 0), part_name("plain", 1)}
    for part in range(2):
        own = [cell for cell in cells if (cell.t_us - first) // length == part]
        names, seen = observe_cells(own, BEAT_US)
        for attacker in chosen:
            here = scores(found, part_name("plain", part), attacker.name, attacker.role)
            assert [here[name] for name in names] == attacker.score_topics(seen)[0].tolist(), attacker.name


def test_the_overlay_and_the_presence_are_read_off_the_wires(observed: dict[str, pa.Table]) -> None:
    reduced = ReducedCells(observed, set())
    ring = sorted({tuple(sorted((NODES[u], NODES[v]))) for u, v in RING})
    assert sorted((row["u"], row["v"]) for row in rows_of(reduced.links) if row["run"] == "plain") == ring
    there = [row["node"] for row in rows_of(reduced.presence) if row["run"] == "plain"]
    assert sorted(there) == sorted(NODES)


def test_an_attack_that_needs_less_gives_the_same_guesses(observed: dict[str, pa.Table], guessed: Rows) -> None:
    for names in (["leaf"], ["cadence"], ["flow-correlation", "disclosure"]):
        found = guess_from_captures(observed, names).to_pylist()
        assert {row["attack"] for row in found} == set(names)
        assert sorted(found, key=_kind) == sorted((row for row in guessed if row["attack"] in names), key=_kind)


def test_observations_have_the_notifications_the_presence_and_the_bytes(
    observed: dict[str, pa.Table], runs: Run
) -> None:
    plain = tables.from_rows(CellRow, runs["plain"])
    _, names, topics, made = observe_tables({"cells": plain, "facts": observed["facts"]}, EVERYTHING)
    assert (names, topics) == (sorted(NODES), [""])
    assert made.publication.max() + 1 == 18
    assert {(names[u], names[v]) for u, v in zip(made.src, made.dst, strict=True)} == {
        (NODES[u], NODES[v]) for u, to in TREE.items() for v in to
    }
    assert made.present.all()
    assert set(made.graph.degrees.tolist()) == {2}
    size = sum(cell.size for cell in runs["plain"])
    assert made.activity.sum() == made.departures.sum() == size
    assert made.correlated is not None
    assert names[int(np.argmax(made.correlated.leads))] == NODES[0]


def test_volumes_are_bounded_by_nodes_and_by_the_length_of_a_record(
    observed: dict[str, pa.Table], runs: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = runs["plain"]
    first = min(cell.t_us for cell in cells)
    begun = first * 25 // BEAT_US * BEAT_US // 25

    def correlate(rows: list[CellRow]) -> FlowScores:
        alone = {"cells": tables.from_rows(CellRow, rows), "facts": observed["facts"]}
        found = observe_tables(alone, {VOLUMES}).seen.correlated
        assert found is not None
        return found

    beats = 10
    half = correlate([cell for cell in cells if cell.t_us < begun + beats * BEAT_US])
    assert not np.array_equal(half.leads, correlate(cells).leads)
    monkeypatch.setattr(flow_job, "BINS_MAX", beats * 25 * len(NODES))
    assert np.array_equal(half.leads, correlate(cells).leads)
    monkeypatch.setattr(flow_job, "NODES_MAX", len(NODES) - 1)
    alone = {"cells": tables.from_rows(CellRow, cells), "facts": observed["facts"]}
    assert observe_tables(alone, {VOLUMES}).seen.correlated is None
    assert {row["score"] for row in guess_from_captures(alone, ["flow-correlation"]).to_pylist()} == {0.0}


def cut_small(patched: pytest.MonkeyPatch) -> None:
    """Slices of a few heartbeats, and blocks of three nodes."""
    patched.setattr(flow_job, "SLICE_VALUES", 60 * len(NODES))
    patched.setattr(flow_job, "BLOCK_PAIRS", 3 * len(NODES))


def test_no_task_of_flow_correlation_has_a_record_to_itself_and_no_bit_changes(
    observed: dict[str, pa.Table], guessed: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch)
    tasks: list[tuple[int, int]] = []
    work = flow_job._sum_slice

    def watch(rows: pa.Table) -> pa.Table:
        seen = rows.filter(pc.less(rows["kind"], 2))
        tasks.append((len(seen), len(pc.unique(seen["node"]))))
        return work(rows)

    monkeypatch.setattr(flow_job, "_sum_slice", watch)
    found = guess_from_captures(observed, ["flow-correlation"]).to_pylist()
    assert sorted(found, key=_kind) == sorted(
        (row for row in guessed if row["attack"] == "flow-correlation"), key=_kind
    )
    assert len(tasks) > 50
    assert max(rows for rows, _ in tasks) < sum(rows for rows, _ in tasks) / 30


@pytest.mark.all_only
def test_spark_divides_flow_correlation_and_no_bit_changes(
    spark: SparkSession, observed: dict[str, pa.Table], guessed: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch)
    frames = {name: spark.createDataFrame(table) for name, table in observed.items()}
    found = guess_from_captures(frames, ["flow-correlation"]).toArrow().to_pylist()
    assert sorted(found, key=_kind) == sorted(
        (row for row in guessed if row["attack"] == "flow-correlation"), key=_kind
    )


def test_the_publisher_and_the_subscribers_come_first(guessed: Rows) -> None:
    """The positive control, and the null control."""
    readers = {NODES[2], NODES[9]}
    assert best(guessed, "leaf", 2) == best(guessed, "closure", 2) == readers
    members = best(guessed, "persistence", 5)
    assert readers <= best(guessed, "intersection", 5) == best(guessed, "disclosure", 5) == members
    for attack in ("flow-source", "flow-correlation"):
        assert best(guessed, attack, 1, "publisher") == {NODES[0]}
    for attack in ("leaf", "flow-correlation"):
        found = scores(guessed, "plain", attack)
        values = np.array([found[node] for node in sorted(NODES)])
        expect_nothing(values, READERS)
        asked = np.array(sorted(NODES)) != NODES[0]
        assert attack != "leaf" or auc(values[asked], READERS[asked]) > 0.9


def test_where_all_cells_look_alike_no_node_stands_out(guessed: Rows) -> None:
    """There are no notes, and so no scores but 0; those of cadence and of volumes are about something else."""
    silent = [
        row["score"]
        for row in guessed
        if row["run"] == "silent" and not row["attack"].startswith(("cadence", "flow-correlation"))
    ]
    assert set(silent) == {0.0}


def test_an_observer_that_subscribes_tells_topics_apart(guessed: Rows) -> None:
    told = [row for row in guessed if row["attack"] == "least-squares"]
    assert {row["topic"] for row in told if row["run"] == "loaded"} == {"news", "weather"}
    assert {row["topic"] for row in told if row["run"] == "plain"} == {""}


def test_who_sends_more_when_something_is_published_is_found_by_an_observer_that_subscribes(guessed: Rows) -> None:
    found = scores(guessed, "loaded", "disclosure", "publisher")
    assert max(found, key=lambda node: found[node]) == NODES[0]


def test_attackers_that_read_the_same_share_a_task_and_others_do_not() -> None:
    chosen = attackers_on(CaptureObservations)
    shares = capture_job.split_by_needs(chosen)
    assert sorted(id(each) for share in shares for each in share) == sorted(map(id, chosen))
    needs = [frozenset(capture_job.needed_parts([each])) for share in shares for each in share]
    assert len(set(needs)) == len(shares) > 3


def test_a_share_of_the_attackers_guesses_what_it_guesses_among_all(
    observed: dict[str, pa.Table], guessed: Rows, trained: dict[str, ClassifierPair]
) -> None:
    found: Rows = []
    for share in capture_job.split_by_needs(attackers_on(CaptureObservations)):
        reduced = ReducedCells(observed, capture_job.needed_parts(share))
        found += capture_job.guess_from_reduced(reduced, observed, share, trained).to_pylist()
    assert sorted(found, key=_kind) == sorted(guessed, key=_kind)


def test_attackers_without_what_they_need_are_left_out_or_refused(observed: dict[str, pa.Table]) -> None:
    unknown = {name: table for name, table in observed.items() if name != "published"}
    kinds = {(row["attack"], row["role"]) for row in guess_from_captures(unknown).to_pylist()}
    assert kinds == {
        (each.name, each.role)
        for each in attackers_on(CaptureObservations)
        if PUBLISHED not in each.needs and not each.trained
    }
    with pytest.raises(ConfigError, match="cadence-linear needs training on other captures"):
        guess_from_captures(observed, ["cadence-linear"])
    with pytest.raises(ConfigError, match="no attack from outside is called 'wishing'"):
        guess_from_captures(observed, ["wishing"])


def _kind(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("run", "attack", "role", "topic", "node"))


_KIND = ("run", "attack", "role", "topic")

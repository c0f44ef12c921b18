"""The global observer over frames: the scores of the array attackers on the same rows, for any number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from support.ring_traffic import BEAT_US, NODES, NOTE, RING, columns, record_ring
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.observations import CaptureObservations
from veilcast.lab.attack.observer import leaf_rule, publication_waves, spark_job
from veilcast.lab.attack.registry import attack_names
from veilcast.observe import CellRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs() -> dict[str, list[CellRow]]:
    """Records of one network: as it is; where heartbeats carry more now and then; and where all cells look alike."""
    plain, loaded = record_ring(1)[0], record_ring(3, loaded=0.3)[0]
    silent = [msgspec.structs.replace(cell, size=500) for cell in plain]
    made = {"plain": plain, "loaded": loaded, "silent": silent}
    return {run: [msgspec.structs.replace(cell, run=run) for cell in cells] for run, cells in made.items()}


@pytest.fixture(scope="module")
def cells(spark: SparkSession, runs: dict[str, list[CellRow]]) -> DataFrame:
    rows = [cell for cells in runs.values() for cell in cells]
    return spark.createDataFrame(tables.from_rows(CellRow, rows)).repartition(2).cache()


@pytest.fixture(scope="module")
def guessed(spark: SparkSession, cells: DataFrame, runs: dict[str, list[CellRow]]) -> Rows:
    """By every attack; of the run with loads the observer knows when which topic was published."""
    times = [cell.t_us for cell in runs["loaded"] if cell.src == NODES[0] and cell.size == NOTE]
    told = [("loaded", "news" if number % 4 < 2 else "weather", t_us) for number, t_us in enumerate(times)]
    published = spark.createDataFrame(told, "run string, topic string, t_us bigint")
    return rows_of(spark_job.guess_roles(cells, heartbeat_us=BEAT_US, published=published))


def rows_of(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def scores(guessed: Rows, run: str, attack: str, role: str = "subscriber") -> dict[str, float]:
    return {
        row["node"]: row["score"] for row in guessed if (row["run"], row["attack"], row["role"]) == (run, attack, role)
    }


def best(guessed: Rows, attack: str, count: int, role: str = "subscriber") -> set[str]:
    found = scores(guessed, "plain", attack, role)
    return set(sorted(found, key=lambda node: -found[node])[:count])


def test_notifications_are_the_same_cells_by_rows_and_by_counts(
    cells: DataFrame, runs: dict[str, list[CellRow]]
) -> None:
    found = rows_of(spark_job.select_notifications(cells, BEAT_US))
    for run, rows in runs.items():
        here = sorted((row["t_us"], row["src"], row["dst"]) for row in found if row["run"] == run)
        notes = publication_waves.find_notifications(*columns(rows), BEAT_US).row
        assert here == sorted((rows[place].t_us, rows[place].src, rows[place].dst) for place in notes)
        assert (len(notes) > 50) == (run != "silent")


def test_the_overlay_and_the_presence_are_read_off_the_wires(cells: DataFrame) -> None:
    links = spark_job.aggregate_links(cells.where("run = 'plain'"))
    ring = sorted({tuple(sorted((NODES[u], NODES[v]))) for u, v in RING})
    assert sorted((row["u"], row["v"]) for row in rows_of(links)) == ring
    assert sorted(row["node"] for row in rows_of(spark_job.aggregate_presence(links))) == sorted(NODES)


def test_every_attack_scores_every_node_in_every_run(guessed: Rows, runs: dict[str, list[CellRow]]) -> None:
    assert {(row["attack"], row["run"]) for row in guessed} == {
        (attack, run) for attack in attack_names(CaptureObservations) for run in runs
    }
    kinds = {(row["attack"], row["run"], row["role"]) for row in guessed}
    assert all(sorted(scores(guessed, run, attack, role)) == sorted(NODES) for attack, run, role in kinds)
    assert np.isfinite([row["score"] for row in guessed]).all()


def test_leaves_are_scored_as_the_array_attacker_scores_them(guessed: Rows, runs: dict[str, list[CellRow]]) -> None:
    t_us, src, dst, size = columns(runs["loaded"])
    seen = publication_waves.find_notifications(t_us, src, dst, size, BEAT_US)
    flows = [seen.row[seen.publication == number] for number in np.unique(seen.publication)]
    mean = np.mean([leaf_rule.score_leaf_rule(src[flow], dst[flow], len(NODES)) for flow in flows], axis=0)
    assert scores(guessed, "loaded", "leaf") == pytest.approx(dict(zip(NODES, mean.tolist(), strict=True)))


def test_the_publisher_and_the_subscribers_come_first(guessed: Rows) -> None:
    readers = {NODES[2], NODES[9]}
    assert best(guessed, "leaf", 2) == best(guessed, "closure", 2) == best(guessed, "persistence", 2) == readers
    assert readers <= best(guessed, "intersection", 5) == best(guessed, "disclosure", 5)
    for attack in ("flow-source", "flow-correlation"):
        assert best(guessed, attack, 1, "publisher") == {NODES[0]}


def test_where_all_cells_look_alike_no_node_stands_out(guessed: Rows) -> None:
    """There are no notes, and so no scores but 0; those of cadence and of volumes are about something else."""
    silent = [
        row["score"]
        for row in guessed
        if row["run"] == "silent" and row["attack"] not in ("cadence", "flow-correlation")
    ]
    assert set(silent) == {0.0}


def test_an_observer_that_subscribes_tells_topics_apart(guessed: Rows) -> None:
    told = [row for row in guessed if row["attack"] == "least-squares"]
    assert {row["topic"] for row in told if row["run"] == "loaded"} == {"news", "weather"}
    assert {row["topic"] for row in told if row["run"] == "plain"} == {""}


def test_an_unknown_attack_is_refused(cells: DataFrame) -> None:
    with pytest.raises(ConfigError, match="no attack from outside is called 'wishing'"):
        spark_job.guess_roles(cells, heartbeat_us=BEAT_US, attacks=["wishing"])

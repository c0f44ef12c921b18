"""The benchmark of engines: every peer gives the guesses of the lab's arrays, and what goes wrong is noticed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import cloudpickle

import attack_engines
import attack_phases
import relay_attackers
from attack_engines import EngineResult
from engines import engine_run, lab_job, lab_pipeline, reductions, tiled_tables
from engines.engine_run import EngineFailure, EngineRequest, EngineTiming
from engines.reductions import EngineLimits
from engines.tiled_tables import HEARTBEAT_US, TiledTables
from measurement import peak_memory, process_tree
from support.array_observer import observe_cells
from veilcast.errors import LocalError, StorageError
from veilcast.lab.attack.insider import advert_origin
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import attackers_on
from veilcast.observe import CellRow

TIMING = EngineTiming(1.0, 4.0, 6.0, 2.0, 3.0, 10, "aa", 100)
NO_TABLES = TiledTables("", "", "", "", 1_000)
REQUEST = EngineRequest("", "cadence", NO_TABLES, 2)


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> TiledTables:
    return tiled_tables.write_tables(tmp_path_factory.mktemp("tiles"), 60_000)


def guess(engine: str, attack: str, tiled: TiledTables, scratch: Path) -> pa.Table:
    peer = reductions.open_peer(engine, tiled, EngineLimits(2, 1_500, str(scratch)))
    return reductions.guess_by_peer(peer, attack)


def test_tiles_are_epochs_of_runs_and_at_least_so_many_rows(tiled: TiledTables) -> None:
    cells, insiders = pq.read_table(tiled.cells), pq.read_table(tiled.insiders)
    assert tiled.rows == min(len(cells), len(insiders)) >= 60_000
    assert set(cells["run"].to_pylist()) == set(insiders["run"].to_pylist()) == {"run-000", "run-001"}


def test_files_of_one_name_hold_the_same_whole_runs_in_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled_tables, "_RUNS", 8)
    monkeypatch.setattr(tiled_tables, "_FILES_MIN", 4)
    tiled = tiled_tables.write_tables(tmp_path, 500_000)
    runs = {
        name: {path.name: set(pq.read_table(path)["run"].to_pylist()) for path in Path(place).glob("*.parquet")}
        for name, place in (("cells", tiled.cells), ("insiders", tiled.insiders), ("presence", tiled.presence))
    }
    assert runs["cells"] == runs["insiders"] == runs["presence"]
    assert len(runs["cells"]) == 4
    assert sum(map(len, runs["cells"].values())) == len(set.union(*runs["cells"].values()))


def test_a_run_of_several_tiles_goes_on_in_the_next_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_tables, "_RUNS", 1)
    cells = pq.read_table(tiled_tables.write_tables(tmp_path, 60_000).cells)
    epoch, t_us = cells["epoch"].to_numpy(), cells["t_us"].to_numpy()
    assert set(cells["run"].to_pylist()) == {"run-000"}
    assert (epoch == t_us // tiled_tables.EPOCH_US).all()
    assert set(epoch.tolist()) == {0, 1}


@pytest.mark.parametrize("engine", attack_engines.PEERS)
@pytest.mark.parametrize("attack", ["notifications", "cadence"])
def test_a_peer_scores_as_the_arrays_of_a_capture_do(
    engine: str, attack: str, tiled: TiledTables, tmp_path: Path
) -> None:
    found = guess(engine, attack, tiled, tmp_path).to_pylist()
    for run in ("run-000", "run-001"):
        rows = pq.read_table(tiled.cells)
        cells = [CellRow(**row) for row in rows.filter(pa.compute.equal(rows["run"], run)).to_pylist()]
        names, seen = observe_cells(cells, HEARTBEAT_US)
        expected = {
            (attacker.name, attacker.role, node): score
            for attacker in attackers_on(CaptureObservations, lab_job.ATTACKS[attack])
            for node, score in zip(names, attacker.score_topics(seen)[0].tolist(), strict=True)
        }
        given = {(row["attack"], row["role"], row["node"]): row["score"] for row in found if row["run"] == run}
        assert given == pytest.approx(expected)
        assert any(given.values())


@pytest.mark.parametrize("engine", attack_engines.PEERS)
def test_a_peer_finds_the_first_spies_that_arrays_find(engine: str, tiled: TiledTables, tmp_path: Path) -> None:
    found = {(row["run"], row["node"]): row["score"] for row in guess(engine, "first-spy", tiled, tmp_path).to_pylist()}
    rows = pq.read_table(tiled.insiders).to_pandas()
    rows = rows[rows["run"] == "run-000"]
    people, message = np.unique(rows["peer"], return_inverse=True), np.unique(rows["message"], return_inverse=True)[1]
    votes = advert_origin.score_first_spy(
        message, people[1].astype(np.int32), rows["t_us"].to_numpy(np.float64), len(people[0])
    )
    assert votes.max() > 0
    for name, share in zip(people[0], votes.tolist(), strict=True):
        assert found["run-000", name] == pytest.approx(share)


@pytest.mark.parametrize("engine", attack_engines.PEERS)
def test_gaps_come_in_the_same_order_where_cells_leave_at_the_same_time(engine: str, tmp_path: Path) -> None:
    cells = pa.table(
        {
            "run": ["a"] * 5 + ["b"],
            "epoch": [0] * 6,
            "t_us": [9_000, 1_000, 9_000, 4_500, 9_000, 70_000],
            "src": ["n1", "n1", "n1", "n1", "n2", "n1"],
            "dst": ["n2", "n2", "n2", "n2", "n1", "n2"],
            "size": [50, 60, 40, 60, 60, 60],
        }
    )
    folder = tmp_path / "cells"
    folder.mkdir()
    pq.write_table(cells, folder / "0.parquet")
    places = dict.fromkeys(("cells", "insiders", "topology", "presence"), str(folder))
    peer = reductions.open_peer(engine, TiledTables(**places, rows=6), EngineLimits(2, None, str(tmp_path)))
    rows = [
        tuple(row.values())
        for row in peer.count_gaps().select(["run", "src", "dst", "gap", "size", "cells"]).to_pylist()
    ]
    assert sorted(rows) == [("a", "n1", "n2", 0, 50, 1), ("a", "n1", "n2", 3, 60, 1), ("a", "n1", "n2", 4, 40, 1)]


@pytest.mark.parametrize("attack", lab_job.ATTACKS)
def test_the_job_of_the_lab_in_one_process_gives_the_guesses_of_a_peer(
    attack: str, tiled: TiledTables, tmp_path: Path
) -> None:
    ours = lab_pipeline.guess_in_process(tiled, attack)
    assert engine_run.digest_guesses(ours) == engine_run.digest_guesses(guess("duckdb", attack, tiled, tmp_path))


def test_a_digest_is_that_of_the_guesses_in_any_order_and_notices_another_score(
    tiled: TiledTables, tmp_path: Path
) -> None:
    guesses = guess("duckdb", "cadence", tiled, tmp_path)
    turned = guesses.take(pa.array(np.arange(len(guesses))[::-1]))
    assert engine_run.digest_guesses(guesses) == engine_run.digest_guesses(turned)
    scores = guesses["score"].to_numpy().copy()
    scores[3] += 0.001
    other = guesses.set_column(guesses.column_names.index("score"), "score", pa.array(scores))
    assert engine_run.digest_guesses(guesses) != engine_run.digest_guesses(other)


def test_engines_take_turns_and_each_round_begins_with_another() -> None:
    order = []

    def run(request: EngineRequest, limit_s: float) -> EngineTiming:
        order.append(request.engine)
        return TIMING

    results = attack_engines.measure_engines(REQUEST, ["duckdb", "polars", "spark"], 3, 1.0, run)
    assert order == ["duckdb", "polars", "spark", "polars", "spark", "duckdb", "spark", "duckdb", "polars"]
    assert [len(each.timings) for each in results] == [3, 3, 3]


def test_an_engine_that_fails_is_named_and_not_asked_again() -> None:
    asked = []

    def run(request: EngineRequest, limit_s: float) -> EngineTiming | EngineFailure:
        asked.append(request.engine)
        return EngineFailure("more than 100 MB") if request.engine == "pandas" else TIMING

    results = attack_engines.measure_engines(REQUEST, ["pandas", "spark"], 3, 1.0, run)
    assert asked.count("pandas") == 1
    told = "\n".join([*attack_engines.table_lines(results), *attack_engines.compare_lines(results)])
    assert "pandas     no result: more than 100 MB" in told
    assert "Spark gives a result, and pandas does not: more than 100 MB" in told


def test_engines_that_differ_or_guess_nothing_give_no_result() -> None:
    def result(engine: str, guesses: int, digest: str) -> EngineResult:
        return EngineResult(1, "cadence", engine, [EngineTiming(1.0, 1.0, 1.0, None, None, guesses, digest)], [0.5])

    attack_engines.check_guesses([result("duckdb", 3, "aa"), result("spark", 3, "aa")])
    with pytest.raises(LocalError, match="engines differ on cadence: duckdb: 3 guesses aa, spark: 3 guesses bb"):
        attack_engines.check_guesses([result("duckdb", 3, "aa"), result("spark", 3, "bb")])
    with pytest.raises(LocalError, match="no engine guessed anything"):
        attack_engines.check_guesses([result("duckdb", 0, "aa")])


def test_a_loss_is_called_a_loss_and_a_gain_is_not() -> None:
    fast = EngineResult(1, "cadence", "duckdb", [EngineTiming(1.0, 1.0, 1.0, 8.0, 6.0, 10, "aa")], [0.5])
    ours = EngineResult(1, "cadence", "spark", [TIMING], [0.5])
    assert list(attack_engines.compare_lines([fast, ours])) == [
        "Spark, first pass: LOSS: 4.0 times that of duckdb",
        "Spark, first pass, processor time: LOSS: 6.0 times that of duckdb",
        "Spark, warm pass: 4.0 times faster than duckdb",
        "Spark, warm pass, processor time: 2.0 times faster than duckdb",
    ]


def test_an_engine_in_a_process_of_its_own_tells_its_times_and_its_memory(tiled: TiledTables) -> None:
    found = engine_run.run_engine(EngineRequest("pandas", "first-spy", tiled, 1), 600.0)
    assert isinstance(found, EngineTiming)
    assert found.guesses == 900
    assert found.ready_s > 0 < found.first_s
    assert found.peak_mb > 50


def test_an_engine_over_its_memory_or_with_an_error_gives_a_reason(tiled: TiledTables) -> None:
    tight = EngineRequest("pandas", "cadence", tiled, 1, memory_mb=40)
    assert engine_run.run_engine(tight, 600.0) == EngineFailure("more than 40 MB")
    found = engine_run.run_engine(EngineRequest("abacus", "cadence", tiled, 1), 600.0)
    assert found == EngineFailure("ValueError: no engine is called abacus")


def test_a_process_that_takes_too_long_is_ended_with_all_that_it_started(tiled: TiledTables) -> None:
    assert engine_run.run_engine(EngineRequest("pandas", "cadence", tiled, 1), 0.01) == EngineFailure(
        "not within 0.01 s"
    )


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="TMPDIR"):
        attack_engines.require_space(str(tmp_path), 10**15)


def test_the_memory_of_a_process_and_its_children_is_seen() -> None:
    with peak_memory.PeakMemory() as peak:
        held = np.ones(40 << 17)
    assert peak.bytes > held.nbytes
    assert not peak.exceeded
    assert process_tree.process_tree(os.getpid())[0] == os.getpid()


def test_the_processor_time_of_an_ended_child_counts() -> None:
    before = process_tree.processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "import os\nwhile os.times().user < 0.3: pass"], check=True)
    assert process_tree.processor_seconds(os.getpid()) - before >= 0.3


def test_processes_above_a_limit_are_killed() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", "import sys; x = bytearray(50 << 20); sys.stdin.read()"], stdin=-1
        ) as one,
        peak_memory.PeakMemory(one.pid, 20 << 20) as peak,
    ):
        assert one.wait() != 0
    assert peak.exceeded


def test_a_run_of_a_relay_unlike_the_others_is_noticed() -> None:
    def row(run: str, node: str, score: float) -> dict[str, object]:
        return {"run": run, "attack": "bodies", "role": "subscriber", "topic": "t", "node": node, "score": score}

    right = [row(run, "u1", 0.5) for run in ("a", "b", "c")]
    relay_attackers.check_runs(right)
    with pytest.raises(LocalError, match=r"bodies subscriber t u1 has a score of 0\.6"):
        relay_attackers.check_runs([right[0], row("b", "u1", 0.6), right[2]])
    with pytest.raises(LocalError, match="2 guesses about a run, and 1 about another"):
        relay_attackers.check_runs([*right, row("b", "u2", 0.5)])
    with pytest.raises(LocalError, match="nothing"):
        relay_attackers.check_runs([])


@pytest.mark.all_only
@pytest.mark.heavy
def test_spark_gives_the_guesses_of_its_peers(tiled: TiledTables) -> None:
    for attack in lab_job.ATTACKS:
        request = EngineRequest("", attack, tiled, 2)
        results = attack_engines.measure_engines(request, attack_engines.ENGINES, 1, 900.0)
        assert [each.engine for each in results if each.failure] == []


@pytest.mark.all_only
@pytest.mark.heavy
def test_phases_tell_java_and_workers_apart() -> None:
    phases = {each.name: each.cpu_s for each in attack_phases.measure_phases(60_000, "notifications")}
    assert phases["Java and the session"]["java"] > 0
    assert phases["first job, without Python"]["workers"] == 0
    assert phases["first job with workers"]["workers"] > 0
    assert phases["in one process, first pass"]["driver"] > 0


@pytest.mark.all_only
@pytest.mark.heavy
def test_the_attackers_on_a_relay_run_at_a_small_size() -> None:
    assert relay_attackers.measure_attackers(1, 1).rows > 0


def test_a_master_is_that_of_the_session_and_its_executors_need_no_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    @contextlib.contextmanager
    def session(url: str) -> Iterator[None]:
        asked.append(url)
        yield

    monkeypatch.setattr("veilcast.lab.spark.session", session)
    for master in ("spark://host:7077", None):
        with lab_pipeline.open_spark(2, None, master):
            assert "engines.lab_pipeline" in cloudpickle._PICKLE_BY_VALUE_MODULES
    assert asked == ["spark://host:7077", "local[2]"]
    assert "engines.lab_pipeline" not in cloudpickle._PICKLE_BY_VALUE_MODULES

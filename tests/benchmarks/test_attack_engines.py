"""The benchmark of attacks: tiles are what they say, pandas says what arrays say, and a wrong score is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import attack_engines
from engines import pandas_attacks, tiled_tables
from engines.pandas_attacks import Scores
from engines.tiled_tables import HEARTBEAT_US, TiledTables
from measurement import peak_memory
from veilcast.errors import LocalError, StorageError
from veilcast.lab.attack.insider import advert_origin
from veilcast.lab.attack.observer import publication_waves


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> TiledTables:
    return tiled_tables.write_tables(tmp_path_factory.mktemp("tiles"), 60_000)


@pytest.fixture(scope="module")
def by_pandas(tiled: TiledTables) -> Scores:
    return pandas_attacks.run_in_pandas(tiled).scores


def test_tiles_are_epochs_of_runs_and_at_least_so_many_rows(tiled: TiledTables) -> None:
    cells, insiders = pq.read_table(tiled.cells), pq.read_table(tiled.insiders)
    assert tiled.rows == min(len(cells), len(insiders)) >= 60_000
    assert set(cells["run"].to_pylist()) == set(insiders["run"].to_pylist()) == {"run-000", "run-001"}


def test_a_run_of_several_tiles_goes_on_in_the_next_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_tables, "_RUNS", 1)
    cells = pq.read_table(tiled_tables.write_tables(tmp_path, 60_000).cells)
    epoch, t_us = cells["epoch"].to_numpy(), cells["t_us"].to_numpy()
    assert set(cells["run"].to_pylist()) == {"run-000"}
    assert (epoch == t_us // tiled_tables.EPOCH_US).all()
    assert set(epoch.tolist()) == {0, 1}


def test_pandas_finds_the_notes_and_the_first_spies_that_arrays_find(tiled: TiledTables, by_pandas: Scores) -> None:
    cells = pq.read_table(tiled.cells).to_pandas()
    cells = cells[cells["run"] == "run-000"]
    names, ends = np.unique(cells[["src", "dst"]], return_inverse=True)
    src, dst = ends.reshape(-1, 2).astype(np.int32).T
    seen = publication_waves.find_notifications(
        cells["t_us"].to_numpy(), src, dst, cells["size"].to_numpy(), HEARTBEAT_US
    )
    always = [
        name
        for place, name in enumerate(names)
        if all((dst[seen.row[seen.publication == wave]] == place).any() for wave in np.unique(seen.publication))
    ]
    remaining = [key[3] for key, score in by_pandas.items() if key[:2] == ("run-000", "intersection") and score == 1.0]
    assert sorted(remaining) == sorted(always)
    rows = pq.read_table(tiled.insiders).to_pandas()
    rows = rows[rows["run"] == "run-000"]
    people, message = np.unique(rows["peer"], return_inverse=True), np.unique(rows["message"], return_inverse=True)[1]
    votes = advert_origin.score_first_spy(
        message, people[1].astype(np.int32), rows["t_us"].to_numpy(np.float64), len(people[0])
    )
    for name, share in zip(people[0], votes.tolist(), strict=True):
        assert by_pandas["run-000", "first-spy", "publisher", name] == pytest.approx(share)


def test_a_wrong_score_a_missing_one_and_a_run_unlike_the_others_are_noticed() -> None:
    right = {(run, "leaf", "subscriber", "n1"): 0.5 for run in ("a", "b", "c")}
    attack_engines.check_scores(right, right)
    attack_engines.check_scores(right, None)
    with pytest.raises(LocalError, match=r"a leaf subscriber n1 has a score of 0\.6, not 0\.5"):
        attack_engines.check_scores(right | {("a", "leaf", "subscriber", "n1"): 0.6}, right)
    with pytest.raises(LocalError, match="3 guesses came, and 4 should have"):
        attack_engines.check_scores(right, right | {("a", "leaf", "subscriber", "n2"): 0.5})
    with pytest.raises(LocalError, match="b leaf subscriber n1"):
        attack_engines.check_scores(right | {("b", "leaf", "subscriber", "n1"): 0.6}, None)
    with pytest.raises(LocalError, match="nobody"):
        attack_engines.check_scores({}, None)


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="TMPDIR"):
        attack_engines._require_space(str(tmp_path), 10**15)


def test_the_memory_of_a_process_and_its_children_is_seen() -> None:
    with peak_memory.PeakMemory() as peak:
        held = np.ones(40 << 17)
    assert peak.bytes > held.nbytes
    assert peak_memory.process_tree(os.getpid())[0] == os.getpid()


@pytest.mark.all_only
@pytest.mark.heavy
def test_all_of_it_runs_at_a_small_size_and_agrees() -> None:
    lines: list[str] = []
    found = attack_engines.run(1, lines.append)
    assert {one["by"] for one in found["measured"]} == {"pandas", "Spark, local[1]", "Spark, local[2]"}
    assert len(lines) == 1 + 3 + 2 * 4

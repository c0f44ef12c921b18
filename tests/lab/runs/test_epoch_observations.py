"""A global observer on the tables of a run over epochs: positive and null controls, silent wires, and both engines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.observer.epoch_job import guess_from_epochs
from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.epochs import Population, run_epochs
from veilcast.lab.runs.mesh.epoch_setup import make_policy, play_games, settle_people
from veilcast.lab.runs.mesh.epoch_tables import EPOCH_US, ROUND_US, EpochTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS = ("leaf", "majority", "persistence", "closure", "centrality", "intersection", "late-join", "survivor")
SOURCES = ("flow-source", "roots", "rumor")
SG = MeshEpochs(nodes=300, degree=6, churn=0.1, steps=(6,), games=4.0)
H = MeshEpochs(nodes=300, degree=6, churn=0.1, steps=(6,), kappa=0.7)
JOBS: tuple[Callable[..., Any], ...] = (guess_from_epochs, guess_from_coalition)
Scores = NDArray[np.float64]


def observe(params: MeshEpochs, seed: int) -> tuple[EpochTables, Population]:
    """All that there is to see."""
    people, way = settle_people(params, seed, None), make_policy(params)
    attackers: list[Any] = [*attackers_on(EpochObservations), *attackers_on(CoalitionObservations)]
    if not people.insiders.any():
        attackers = list(attackers_on(EpochObservations))
    found = EpochTables(params, people, way, attackers)
    for epoch in run_epochs(people, way, int(params.steps[-1])):
        found.observe_epoch(epoch, play_games(people, epoch, way.games) if way.games else None)
    found.watch_links()
    return found, people


@cache
def watched(params: MeshEpochs, seed: int) -> tuple[dict[str, pa.Table], NDArray[np.bool_], int]:
    found, people = observe(params, seed)
    return found.observed(), np.isin(np.arange(params.nodes), people.subscribers), people.publisher


@cache
def scored(params: MeshEpochs, seed: int, epochs: int = 6) -> dict[str, Scores]:
    tables, _, _ = watched(params, seed)
    guesses: pa.Table = guess_from_epochs(tables, (*READERS, *SOURCES, "closure-certain", "mesh-members"), (epochs,))
    return {
        attack: guesses.filter(pc.equal(guesses["attack"], attack))["score"].to_numpy()
        for attack in guesses["attack"].unique().to_pylist()
    }


def mean_auc(params: MeshEpochs, attack: str, *, shuffled: bool = False) -> float:
    values = []
    for seed in range(8):
        _, subscribes, _ = watched(params, seed)
        labels = np.random.default_rng(seed).permutation(subscribes) if shuffled else subscribes
        values.append(auc(scored(params, seed)[attack], labels))
    return float(np.mean(values))


@pytest.mark.parametrize("attack", READERS)
def test_six_epochs_of_the_shell_game_reveal_the_subscribers_and_shuffled_labels_do_not(attack: str) -> None:
    assert mean_auc(SG, attack) > 0.88
    assert mean_auc(SG, attack, shuffled=True) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("attack", READERS)
def test_silent_wires_reveal_no_subscribers(attack: str) -> None:
    assert mean_auc(H, attack) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("attack", ["flow-source", "roots"])
def test_the_publisher_is_found_on_visible_wires_and_not_on_silent_ones(attack: str) -> None:
    for seed in range(4):
        shown, silent = scored(SG, seed)[attack], scored(H, seed)[attack]
        suspects = shown == shown.max()
        assert suspects[watched(SG, seed)[2]]
        assert np.count_nonzero(suspects) <= 3
        assert np.count_nonzero(silent == silent.max()) > 100


def test_every_node_that_closure_is_certain_of_subscribes_and_is_a_member() -> None:
    for seed in range(8):
        certain = scored(SG, seed)["closure-certain"] > 0
        assert certain.any()
        assert watched(SG, seed)[1][certain].all()
        assert scored(SG, seed)["mesh-members"][certain].all()


def test_slow_attackers_use_only_the_epochs_at_which_they_are_asked() -> None:
    tables, _, _ = watched(SG, 1)
    guesses: pa.Table = guess_from_epochs(tables, ("roots", "leaf"), (2, 6))

    def after(attack: str) -> list[float]:
        return [row["score"] for row in guesses.to_pylist() if (row["attack"], row["epochs"]) == (attack, 6)]

    assert after("leaf") == scored(SG, 1)["leaf"].tolist()
    assert after("roots") != scored(SG, 1)["roots"].tolist()


def test_the_order_of_rows_says_nothing() -> None:
    tables, _, _ = watched(SG, 2)
    rng = np.random.default_rng(1)
    mixed = {name: table.take(rng.permutation(len(table))) for name, table in tables.items()}
    guesses: pa.Table = guess_from_epochs(mixed, None, (3, 6))
    assert guesses.equals(guess_from_epochs(tables, None, (3, 6)))


def test_rounds_in_which_nothing_was_received_are_rounds() -> None:
    """Without the rows of one round, the round is there and quiet."""
    tables, subscribes, _ = watched(SG, 0)
    received = tables["received"]
    fewer = received.filter(pc.not_equal(received["t_us"], 5 * EPOCH_US + 7 * ROUND_US))
    assert len(fewer) < len(received)
    guesses: pa.Table = guess_from_epochs(tables | {"received": fewer}, ("disclosure", "least-squares"), (6,))
    for attack in ("disclosure", "least-squares"):
        scores = [row["score"] for row in guesses.to_pylist() if row["attack"] == attack]
        assert auc(np.array(scores), subscribes) > 0.8


def test_an_attack_without_its_tables_is_refused_and_left_out_where_all_are_asked() -> None:
    tables = {name: table for name, table in watched(SG, 0)[0].items() if name not in ("formation", "received")}
    with pytest.raises(ConfigError, match="survivor reads the tables cells and formation, which are not all there"):
        guess_from_epochs(tables, ["survivor"])
    with pytest.raises(ConfigError, match="no attack over epochs is called 'wishing'"):
        guess_from_epochs(tables, ["wishing"])
    guesses: pa.Table = guess_from_epochs(tables, None, (1,))
    told = set(guesses["attack"].to_pylist())
    assert {"leaf", "closure"} <= told
    assert not {"survivor", "late-join", "disclosure", "least-squares"} & told


@pytest.mark.all_only
def test_spark_on_stored_tables_of_several_runs_guesses_what_each_run_guesses_for_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The task of a sweep takes Arrow tables of one run; Spark takes the same rows as Parquet files, of all runs."""
    runs = {
        "shown": MeshEpochs(nodes=80, degree=6, churn=0.1, insiders=0.1, steps=(1, 4), pace="beats", games=2.0),
        "covered": MeshEpochs(nodes=80, degree=6, churn=0.1, insiders=0.1, steps=(1, 4), cover="one", mu=0.6),
        "hidden": MeshEpochs(nodes=80, degree=6, churn=0.1, insiders=0.1, steps=(1, 4), kappa=0.7, steady=False),
    }
    here: dict[str, pa.Table] = {}
    for run, params in runs.items():
        tables = observe(params, 3)[0].observed()
        for job in JOBS:
            guesses = _rename(job(tables, None, (1, 4)), run)
            here[run] = pa.concat_tables([here[run], guesses]) if run in here else guesses
        for name, table in tables.items():
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(_rename(table, run), tmp_path / name / f"{run}.parquet")
    stored = {path.name: spark.read.parquet(str(path)) for path in tmp_path.iterdir()}
    for job in JOBS:
        there = job(stored, None, (1, 4)).toArrow()
        attacks = set(there["attack"].to_pylist())
        wanted = pa.concat_tables(here.values())
        wanted = wanted.filter(pc.is_in(wanted["attack"], pa.array(sorted(attacks))))
        order = [(name, "ascending") for name in ("run", "attack", "epochs", "role", "node")]
        assert there.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist()


def _rename(table: pa.Table, run: str) -> pa.Table:
    return table.set_column(0, table.schema.field("run"), pa.array([run] * len(table)))

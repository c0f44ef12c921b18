"""Colluding nodes of trees on tables: the scores of the attackers on arrays, on both engines, and real nodes' taps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.attack.insider.tree_job import guess_from_trees
from veilcast.lab.models import tree
from veilcast.lab.models.tree_refreshes import TreePolicy, TreeReaders, trace_paths, watch_refreshes
from veilcast.lab.runs.tree.tree_tables import observe_trees
from veilcast.lab.runs.tree.tree_tap import TreeTap
from veilcast.observe import PresenceRow, ServerRow, TokenRow
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, REFRESHES = 60, 5
DRAWN = tree.draw_nodes(NODES, 14, 3, "village")
VILLAGE = TreeReaders(NODES, np.sort(DRAWN[2:]), DRAWN[:2], np.array([0, 1]), 3)
SCORERS = {
    "count": lambda entries: tree_nodes.standardise_counts(tree_nodes.score_counts(entries, NODES)),
    "lasting": lambda entries: tree_nodes.standardise_counts(tree_nodes.score_lasting(entries, NODES)),
    "depth": lambda entries: tree_nodes.score_depth(entries, NODES),
    "volume": lambda entries: tree_nodes.score_volume(entries, NODES),
}


def guess(observed: dict[str, pa.Table], names: Collection[str] | None = None, epochs: Sequence[int] = ()) -> pa.Table:
    found = guess_from_trees(observed, names, epochs)
    assert isinstance(found, pa.Table)
    return found


def observe(habit: TreePolicy) -> dict[str, pa.Table]:
    entries = watch_refreshes(VILLAGE, habit, REFRESHES, 10)
    return observe_trees("r", VILLAGE, habit, entries, trace_paths(VILLAGE, habit, 200), topics=2)


@pytest.mark.parametrize("habit", [TreePolicy("paper"), TreePolicy()])
@pytest.mark.parametrize("epochs", [2, REFRESHES])
def test_the_same_scores_come_of_the_tables(habit: TreePolicy, epochs: int) -> None:
    entries = watch_refreshes(VILLAGE, habit, REFRESHES, 10).before(epochs)
    found = guess(observe(habit), SCORERS, [epochs]).to_pylist()
    assert len(found) == 4 * 2 * np.count_nonzero(VILLAGE.honest)
    for row in found:
        scores = SCORERS[row["attack"]](entries.of_topic(int(row["topic"][1:])))
        assert row["score"] == scores[int(row["node"][1:])]
        assert (row["coalition"], row["epochs"], row["role"]) == (VILLAGE.insiders.size, epochs, "subscriber")


def test_an_attacker_that_does_not_know_how_trees_are_made_is_left_out() -> None:
    paper, hardened = (
        set(guess(observe(habit))["attack"].to_pylist()) for habit in (TreePolicy("paper"), TreePolicy("hardened"))
    )
    assert paper ^ hardened == {"likelihood", "guards"}
    assert "origin" in paper & hardened


@pytest.mark.all_only
def test_spark_gives_the_same_guesses_of_several_runs(spark: SparkSession) -> None:
    runs = [observe(TreePolicy("paper")), observe(TreePolicy())]
    whole = {
        name: pa.concat_tables(
            [
                table.set_column(0, table.schema.field(0), pa.repeat(pa.scalar(f"r{number}"), len(table)))
                for number, table in enumerate(run[name] for run in runs)
            ]
        )
        for name in runs[0]
    }
    here = guess(whole, epochs=[1, 3, 5])
    frames = {name: spark.createDataFrame(table) for name, table in whole.items()}
    there = guess_from_trees(frames, epochs=[1, 3, 5])
    assert not isinstance(there, pa.Table)
    order = [(name, "ascending") for name in here.column_names]
    assert there.toArrow().select(here.column_names).sort_by(order).equals(here.sort_by(order))


def test_taps_of_real_nodes_can_be_attacked_too() -> None:
    """Epochs are far from 0, and the longest bundle of the paper's trees names the subscriber."""
    epoch_us = 30_000_000
    plain = TreePopulation(nodes=12, publishers=1, subscribers=1, topics=1, notes=0, checks=())
    population = msgspec.structs.replace(plain, tree=msgspec.structs.replace(plain.tree, profile="paper"))
    world = World(seed=3, epoch_us=epoch_us)
    nodes = population.node_names()
    taps = TreeTap("r", population, nodes[:-1], epoch_us)
    world.watch(taps)
    population.populate(world, 2 * epoch_us)
    world.run(2 * epoch_us)
    epochs = sorted({row.epoch for row in taps.rows})
    known = {(row.epoch, row.tag) for row in taps.rows}
    people = [*nodes, *population.subscriber_names()]
    observed = {
        "server": tables.from_rows(ServerRow, taps.rows),
        "tokens": tables.from_rows(TokenRow, [TokenRow("r", epoch, tag, "news") for epoch, tag in sorted(known)]),
        "presence": tables.from_rows(
            PresenceRow, [PresenceRow("r", epochs[0], name) for name in dict.fromkeys(people)]
        ),
    }
    found = guess(observed, ["depth"]).sort_by([("score", "descending")])
    assert epochs[0] > 1_000
    assert found["node"][0].as_py() == population.subscriber_names()[0]


def test_an_unknown_tree_attack_and_missing_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="no attack in trees is called 'magic'"):
        guess_from_trees(observe(TreePolicy()), ["magic"])
    with pytest.raises(ConfigError, match="need the tables tokens and presence"):
        guess_from_trees({"server": observe(TreePolicy())["server"]})

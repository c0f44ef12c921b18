"""Colluding nodes of trees over the table `server`, on Spark: the scores of the array attackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.models import tree
from veilcast.lab.models.tree_entries import entry_rows
from veilcast.lab.models.tree_refreshes import TreePolicy, TreeReaders, watch_refreshes
from veilcast.observe import ServerRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES, REFRESHES = 60, 5
DRAWN = tree.draw_nodes(NODES, 14, 3, "village")
VILLAGE = TreeReaders(NODES, np.sort(DRAWN[2:]), DRAWN[:2], np.array([0, 1]), 3)


def tag(refresh: int, topic: int) -> bytes:
    return bytes([refresh, topic, 7])


def words(spark: SparkSession) -> DataFrame:
    known = [("r", refresh, f"t{topic}", tag(refresh, topic)) for refresh in range(REFRESHES) for topic in (0, 1)]
    return spark.createDataFrame(known, "run string, epoch bigint, topic string, tag binary")


@pytest.mark.parametrize("habit", [TreePolicy("paper"), TreePolicy()])
def test_the_same_scores_come_of_the_table(spark: SparkSession, habit: TreePolicy) -> None:
    entries = watch_refreshes(VILLAGE, habit, REFRESHES, 10)
    server = spark.createDataFrame(tables.from_rows(ServerRow, entry_rows(entries, "r", "n{}".format, tag)))
    found = tree_nodes.guess_from_trees(server, words(spark), attacks=tree_nodes.TREE_ATTACKS).toArrow().to_pylist()
    scorers = {"count": tree_nodes.score_counts, "lasting": tree_nodes.score_lasting, "depth": tree_nodes.score_depth}
    for topic in (0, 1):
        for attack, scorer in scorers.items():
            scores = np.zeros(NODES)
            for row in found:
                if (row["topic"], row["attack"]) == (f"t{topic}", attack):
                    scores[int(row["node"][1:])] = row["score"]
                    assert row["coalition"] == VILLAGE.insiders.size
                    assert 1 <= row["epochs"] <= REFRESHES
            assert (scores == scorer(entries.of_topic(topic), NODES)).all()


def test_an_unknown_tree_attack_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="have no attack"):
        tree_nodes.guess_from_trees(words(spark), words(spark), attacks=["magic"])

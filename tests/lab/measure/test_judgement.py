"""Guesses meet the truth: by run, by topic, and whoever publishes is nobody's subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from veilcast.lab import tables
from veilcast.lab.measure.judgement import judged
from veilcast.lab.measure.ranking import auc
from veilcast.lab.tables import Guess
from veilcast.observe import Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = [f"n{number}" for number in range(20)]


def truth(run: str, topic: str, publisher: int, readers: list[int]) -> list[Truth]:
    roles = {publisher: "publisher"} | dict.fromkeys(readers, "subscriber")
    return [Truth(run, topic, NODES[node], role, 0, 1) for node, role in roles.items()]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[tuple[str, str, str, str], float]:
    """Of two runs; in the second nothing is known of topics, of which there are two."""
    rng = np.random.default_rng(1)
    labels = [*truth("one", "a", 0, [1, 2, 3]), *truth("two", "a", 0, [1, 2, 3]), *truth("two", "b", 4, [5])]
    sharp = {1: 9.0, 2: 8.0, 3: 7.0, 5: 6.0, 0: 100.0}
    rows = [
        Guess(run, attack, 5, 2, topic, role, name, score)
        for run, topic in (("one", "a"), ("two", ""))
        for number, name in enumerate(NODES)
        for attack, role, score in (
            ("sharp", "subscriber", sharp.get(number, 0.0)),
            ("blind", "subscriber", float(rng.random())),
            ("sharp", "publisher", {0: 2.0, 4: 1.0}.get(number, 0.0)),
        )
    ]
    guesses = spark.createDataFrame(tables.from_rows(Guess, rows)).repartition(3)
    near = spark.createDataFrame([("one", NODES[node]) for node in (1, 10, 11)], "run string, node string")
    answer = judged(guesses, spark.createDataFrame(tables.from_rows(Truth, labels)), near)
    return {(row["run"], row["attack"], row["role"], row["metric"]): row["value"] for row in answer.collect()}


def test_a_perfect_order_is_one_though_the_publisher_stands_first(found: dict[tuple[str, ...], float]) -> None:
    assert found["one", "sharp", "subscriber", "auc"] == 1.0
    assert found["one", "sharp", "subscriber", "base"] == pytest.approx(3 / 19)
    assert found["one", "sharp", "subscriber", "auc_near"] == 1.0


def test_a_guess_without_a_topic_is_right_in_any(found: dict[tuple[str, ...], float]) -> None:
    assert found["two", "sharp", "subscriber", "auc"] == 1.0
    assert found["two", "sharp", "subscriber", "base"] == pytest.approx(4 / 18)
    assert found["two", "sharp", "publisher", "rank"] == 1.5


def test_the_publisher_is_found_at_the_first_guess(found: dict[tuple[str, ...], float]) -> None:
    assert found["one", "sharp", "publisher", "success"] == 1.0
    assert found["one", "sharp", "publisher", "base"] == 1 / 20


def test_scores_that_know_nothing_are_judged_as_by_hand(found: dict[tuple[str, ...], float]) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(20)
    asked = np.arange(1, 20)
    assert found["one", "blind", "subscriber", "auc"] == auc(scores[asked], np.isin(asked, [1, 2, 3]))

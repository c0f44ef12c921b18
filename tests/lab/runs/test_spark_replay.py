"""Traces on Spark: the same as in one process, whatever the parts, and nothing but a matrix comes back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from veilcast.lab.models.synthetic_trace import TraceLaw
from veilcast.lab.models.user_placement import UserPlacement
from veilcast.lab.runs.brokers import spark_replay as replays
from veilcast.lab.runs.brokers.spark_replay import make_synthetic_trace, replay_on_spark
from veilcast.lab.tables import Interaction, Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAW = TraceLaw(2_000, 18_900, 5_000, 3)


def test_executors_make_the_trace_that_one_process_makes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "PART_ROWS", 3_000)
    frame = make_synthetic_trace(spark, LAW, Relation)
    assert frame.rdd.getNumPartitions() == 7
    rows = frame.toArrow()
    plain = LAW.relations_of(LAW.part(0, 1))
    assert Counter(zip(*(rows[name].to_pylist() for name in ("user", "friend")), strict=True)) == Counter(
        zip(plain.user.tolist(), plain.friend.tolist(), strict=True)
    )


def test_a_replay_is_the_matrix_of_one_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {alpha: UserPlacement.by_zipf(20, alpha, 1) for alpha in (0.5, 2.0)}
    plain = LAW.interactions_of(LAW.part(0, 1))
    for rows in (1_000_000, 700):
        monkeypatch.setattr(replays, "PART_ROWS", rows)
        found = replay_on_spark(make_synthetic_trace(spark, LAW, Interaction), homes)
        assert found.keys() == homes.keys()
        for alpha, matrix in found.items():
            assert np.array_equal(matrix, homes[alpha].matrix(plain.publisher, plain.subscriber))

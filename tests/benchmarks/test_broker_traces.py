"""The benchmark of traces: everything is there and checked, and a trace that was spoilt is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import broker_traces
from veilcast.errors import LocalError
from veilcast.lab.models.synthetic_trace import P4
from veilcast.lab.models.user_placement import UserPlacement
from veilcast.lab.runs.brokers.spark_replay import make_synthetic_trace, replay_on_spark
from veilcast.lab.tables import Interaction, Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAW = broker_traces.scale_trace(1e-3)
HOMES = {0.5: UserPlacement.by_zipf(broker_traces.BROKERS, 0.5, 0)}


def test_a_part_of_p4s_trace_has_as_much_of_everything() -> None:
    assert (LAW.users, LAW.relations, LAW.interactions) == (3_000, 28_300, 1_400)
    assert broker_traces.scale_trace(1) == broker_traces.scale_trace(7) == P4


def test_whatever_was_written_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    for row in (Relation, Interaction):
        make_synthetic_trace(spark, LAW, row).write.parquet(f"file://{tmp_path / f'{row.__name__.lower()}s'}")
    matrices = replay_on_spark(spark.read.parquet(f"file://{tmp_path / 'interactions'}"), HOMES)
    broker_traces.check_trace(spark, tmp_path, LAW, HOMES, matrices)
    matrices[0.5][0, 0] += 1
    with pytest.raises(LocalError, match="another trace"):
        broker_traces.check_trace(spark, tmp_path, LAW, HOMES, matrices)
    next((tmp_path / "relations").glob("*.parquet")).unlink()
    with pytest.raises(LocalError, match="of 28,300 rows of relations"):
        broker_traces.check_trace(spark, tmp_path, LAW, HOMES, matrices)

"""The benchmark of traces: everything is there and checked, and a trace that was spoilt is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from veilcast.errors import LocalError
from veilcast.lab.bench import traces
from veilcast.lab.kernels.overlay_synthetic import P4
from veilcast.lab.kernels.overlay_users import Placement
from veilcast.lab.sweep.replay import replay, synthetic
from veilcast.lab.tables import Interaction, Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAW = traces.scaled(1e-3)
HOMES = {0.5: Placement.zipf(traces.BROKERS, 0.5, 0)}


def test_a_part_of_p4s_trace_has_as_much_of_everything() -> None:
    assert (LAW.users, LAW.relations, LAW.interactions) == (3_000, 28_300, 1_400)
    assert traces.scaled(1) == traces.scaled(7) == P4


def test_whatever_was_written_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    for row in (Relation, Interaction):
        synthetic(spark, LAW, row).write.parquet(f"file://{tmp_path / f'{row.__name__.lower()}s'}")
    matrices = replay(spark.read.parquet(f"file://{tmp_path / 'interactions'}"), HOMES)
    traces.check(spark, tmp_path, LAW, HOMES, matrices)
    matrices[0.5][0, 0] += 1
    with pytest.raises(LocalError, match="another trace"):
        traces.check(spark, tmp_path, LAW, HOMES, matrices)
    next((tmp_path / "relations").glob("*.parquet")).unlink()
    with pytest.raises(LocalError, match="of 28,300 rows of relations"):
        traces.check(spark, tmp_path, LAW, HOMES, matrices)

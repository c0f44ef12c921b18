"""On Spark an audit finds what it finds in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from veilcast.lab.audit import audit, files, large, small
from veilcast.lab.audit.files import Link
from veilcast.lab.spark import session

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "attack"))
from recorded import loud, members
from wires import NODES, RING

EPOCH_US = 7_000_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        yield started


@pytest.mark.all_only
@pytest.mark.parametrize(
    "links",
    [
        pytest.param((), id="seen"),
        pytest.param(tuple(Link(NODES[u], NODES[v]) for u, v in RING if u < v), id="told", marks=pytest.mark.heavy),
    ],
)
def test_spark_and_memory_find_the_same(links: tuple[Link, ...], spark: SparkSession, tmp_path: Path) -> None:
    net, known = loud(tmp_path / "net"), files.members(members(tmp_path / "m.json"))
    one, other = large.observe([net], EPOCH_US, links, spark), small.observe([net], EPOCH_US, links)
    assert one.heartbeat_us == other.heartbeat_us
    assert one.nodes == other.nodes
    assert [(each.attack, each.role) for each in one.guesses] == [(each.attack, each.role) for each in other.guesses]
    for ours, theirs in zip(one.guesses, other.guesses, strict=True):
        np.testing.assert_allclose(ours.whole, theirs.whole, err_msg=ours.attack)
        np.testing.assert_allclose(ours.parts, theirs.parts, err_msg=ours.attack)
    found, wanted = (audit.audit(each, links, known) for each in (one, other))
    assert found.found() == wanted.found()
    assert (found.wire, found.flows, found.advice) == (wanted.wire, wanted.flows, wanted.advice)

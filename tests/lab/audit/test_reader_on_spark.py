"""On Spark an audit finds what it finds in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from support.recorded_network import make_probes, members, other_network, write_cells
from support.ring_traffic import NODES, RING, record_ring, sort_by_time
from veilcast.lab.audit import audit, operator_files, reader
from veilcast.lab.audit.observed import ObservedNetwork
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.spark import session

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
        pytest.param(
            tuple(OverlayLink(NODES[u], NODES[v]) for u, v in RING if u < v), id="told", marks=pytest.mark.heavy
        ),
    ],
)
def test_spark_and_memory_find_the_same(links: tuple[OverlayLink, ...], spark: SparkSession, tmp_path: Path) -> None:
    """In a capture with another network, and a stranger that sends to a member."""
    foreign = [*other_network(Random(4), 20), *make_probes(Random(5), 20, NODES)]
    net = write_cells(tmp_path / "net", sort_by_time([*record_ring(1, 20)[0], *foreign]))
    known = operator_files.read_members(members(tmp_path / "m.json"))
    listed = {member.node for member in known}
    for named in (listed, ()):
        one = reader.observe([net], EPOCH_US, links if named else (), named, spark=spark)
        other = reader.observe([net], EPOCH_US, links if named else (), named)
        assert (one.left_out, one.seen) == (other.left_out, other.seen)
        assert len(one.networks) == len(other.networks) == (1 if named else 2)
        for ours, theirs in zip(one.networks, other.networks, strict=True):
            assert ours.heartbeat_us == theirs.heartbeat_us
            assert ours.nodes == theirs.nodes
            assert [each[:2] for each in _scores(ours)] == [each[:2] for each in _scores(theirs)]
            for (attack, _, *mine), (_, _, *yours) in zip(_scores(ours), _scores(theirs), strict=True):
                np.testing.assert_allclose(mine[0], yours[0], err_msg=attack)
                np.testing.assert_allclose(mine[1], yours[1], err_msg=attack)
        found, wanted = (audit.audit_capture(each, links, known if named else ()) for each in (one, other))
        assert found.found() == wanted.found()
        for left, right in zip(found.networks, wanted.networks, strict=True):
            assert (left.wire, left.flows, left.advice) == (right.wire, right.flows, right.advice)


def _scores(seen: ObservedNetwork) -> list[tuple[str, str, NDArray[np.float64], NDArray[np.float64]]]:
    return [(each.attack, each.role, each.whole, each.parts) for each in seen.guesses]

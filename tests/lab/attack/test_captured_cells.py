"""Observations from cells in memory; the tests of the Spark job compare them with frames."""

from __future__ import annotations

import numpy as np
import pytest

from support.ring_traffic import BEAT_US, NODES, NOTE, TREE, record_ring
from support.watched_meshes import expect_nothing
from veilcast.lab import tables
from veilcast.lab.attack import observations as volumes_of
from veilcast.lab.attack.observations import CaptureObservations
from veilcast.lab.attack.observer import captured_cells
from veilcast.lab.attack.observer.captured_cells import CapturedCells
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.measure.ranking import auc
from veilcast.observe import CellRow

READERS = np.isin(sorted(NODES), [NODES[2], NODES[9], NODES[1]])


@pytest.fixture(scope="module")
def seen() -> CapturedCells:
    return CapturedCells.from_table(tables.from_rows(CellRow, record_ring(1)[0]))


def test_cells_have_numbers_for_names_in_their_order(seen: CapturedCells) -> None:
    cells = record_ring(1)[0]
    assert seen.names == sorted(NODES)
    assert [seen.names[node] for node in seen.src[:50]] == [cell.src for cell in cells[:50]]
    assert [seen.names[node] for node in seen.dst[:50]] == [cell.dst for cell in cells[:50]]
    assert CapturedCells.from_table(tables.from_rows(CellRow, cells), ["zz"]).names == [*sorted(NODES), "zz"]


def test_observations_have_the_notifications_the_overlay_and_the_presence(seen: CapturedCells) -> None:
    assert seen.notification_size(BEAT_US) == NOTE
    made = seen.observations(BEAT_US, NOTE)
    assert made.publication.max() + 1 == 18
    assert {(seen.names[u], seen.names[v]) for u, v in zip(made.src, made.dst, strict=True)} == {
        (NODES[u], NODES[v]) for u, to in TREE.items() for v in to
    }
    assert made.present.all()
    assert set(made.graph.degrees.tolist()) == {2}
    assert made.rounds.activity.sum() == seen.size.sum()
    assert made.volumes is not None
    assert [ways.sum() for ways in made.volumes] == [seen.size.sum()] * 2


def test_every_attacker_scores_and_leaves_come_first(seen: CapturedCells) -> None:
    """The positive control, and the null control."""
    found = captured_cells.score_all(seen.observations(BEAT_US, NOTE))
    assert list(found) == [(each.name, each.role) for each in attackers_on(CaptureObservations)]
    asked = np.array(seen.names) != NODES[0]
    assert auc(found["leaf", "subscriber"][asked], READERS[asked]) > 0.9
    for attack in ("flow-source", "flow-correlation"):
        assert seen.names[found[attack, "publisher"].argmax()] == NODES[0]
    expect_nothing(found["leaf", "subscriber"], READERS)
    expect_nothing(found["flow-correlation", "subscriber"], READERS)


def test_volumes_are_bounded_by_nodes_and_by_the_length_of_a_record(
    seen: CapturedCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = seen.volumes(BEAT_US)
    assert whole is not None
    bins = whole.leaving.shape[1] // 2
    monkeypatch.setattr(volumes_of, "BINS_MAX", bins * len(NODES))
    half = seen.volumes(BEAT_US)
    assert half is not None
    assert np.array_equal(half.arriving, whole.arriving[:, :bins])
    monkeypatch.setattr(volumes_of, "NODES_MAX", len(NODES) - 1)
    assert seen.volumes(BEAT_US) is None
    assert not seen.observations(BEAT_US, NOTE).correlated.leads.any()


def test_parts_of_a_record_are_records(seen: CapturedCells) -> None:
    half = seen.between(0, 5_000_000)
    assert half.names == seen.names
    assert half.observations(BEAT_US, NOTE).publication.max() + 1 == 9
    nothing = captured_cells.score_all(seen.between(-2, -1).observations(BEAT_US, NOTE))
    assert all(not scores.any() for scores in nothing.values())

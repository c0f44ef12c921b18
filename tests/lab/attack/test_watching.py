"""What is made of cells in memory; that it is the same as over frames is asked where frames are tested."""

from __future__ import annotations

import numpy as np
import pytest

from support.watched import expect_nothing
from support.wires import BEAT_US, NODES, NOTE, TREE, record
from veilcast.lab import tables
from veilcast.lab.attack import record as volumes_of
from veilcast.lab.attack import watching
from veilcast.lab.attack.outsiders import OUTSIDERS
from veilcast.lab.attack.watching import Cells
from veilcast.lab.measure.ranking import auc
from veilcast.observe import Cell

READERS = np.isin(sorted(NODES), [NODES[2], NODES[9], NODES[1]])


@pytest.fixture(scope="module")
def seen() -> Cells:
    return Cells.of(tables.from_rows(Cell, record(1)[0]))


def test_cells_have_numbers_for_names_in_their_order(seen: Cells) -> None:
    cells = record(1)[0]
    assert seen.names == sorted(NODES)
    assert [seen.names[node] for node in seen.src[:50]] == [cell.src for cell in cells[:50]]
    assert [seen.names[node] for node in seen.dst[:50]] == [cell.dst for cell in cells[:50]]
    assert Cells.of(tables.from_rows(Cell, cells), ["zz"]).names == [*sorted(NODES), "zz"]


def test_a_record_has_the_notes_the_overlay_and_who_was_there(seen: Cells) -> None:
    assert seen.note_size(BEAT_US) == NOTE
    made = seen.record(BEAT_US, NOTE)
    assert made.publication.max() + 1 == 18
    assert {(seen.names[u], seen.names[v]) for u, v in zip(made.src, made.dst, strict=True)} == {
        (NODES[u], NODES[v]) for u, to in TREE.items() for v in to
    }
    assert made.present.all()
    assert set(made.graph.degrees.tolist()) == {2}
    assert made.rounds.activity.sum() == seen.size.sum()
    assert made.volumes is not None
    assert [ways.sum() for ways in made.volumes] == [seen.size.sum()] * 2


def test_every_attacker_says_something_and_leaves_come_first(seen: Cells) -> None:
    """The positive control, and the null control."""
    found = watching.scores(seen.record(BEAT_US, NOTE))
    assert list(found) == [(each.attack, each.role) for each in OUTSIDERS]
    asked = np.array(seen.names) != NODES[0]
    assert auc(found["leaf", "subscriber"][asked], READERS[asked]) > 0.9
    for attack in ("flow-source", "flow-correlation"):
        assert seen.names[found[attack, "publisher"].argmax()] == NODES[0]
    expect_nothing(found["leaf", "subscriber"], READERS)
    expect_nothing(found["flow-correlation", "subscriber"], READERS)


def test_volumes_of_too_many_nodes_are_not_counted_and_of_too_long_a_record_its_beginning(
    seen: Cells, monkeypatch: pytest.MonkeyPatch
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
    assert not seen.record(BEAT_US, NOTE).correlated.leads.any()


def test_parts_of_a_record_are_records(seen: Cells) -> None:
    half = seen.between(0, 5_000_000)
    assert half.names == seen.names
    assert half.record(BEAT_US, NOTE).publication.max() + 1 == 9
    nothing = watching.scores(seen.between(-2, -1).record(BEAT_US, NOTE))
    assert all(not scores.any() for scores in nothing.values())

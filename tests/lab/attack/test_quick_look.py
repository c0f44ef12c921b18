"""The demo's attackers succeed on a wire with visible notifications, and find nothing on a silent one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from support.ring_traffic import BEAT_US, NODES, TREE, heartbeats, record_ring, sort_by_time
from veilcast.lab import tables
from veilcast.lab.attack.observer.quick_look import QuickLook, take_quick_look
from veilcast.lab.measure.ranking import auc
from veilcast.observe import CellRow

OTHERS = NODES[1:]
READERS = np.isin(OTHERS, [NODES[2], NODES[9], NODES[1]])


def look(cells: list[CellRow], published: list[int]) -> QuickLook:
    return take_quick_look(tables.from_rows(CellRow, cells), BEAT_US, published)


def told(scores: dict[str, float]) -> float:
    return auc(np.array([scores[node] for node in OTHERS]), READERS)


@pytest.mark.parametrize("loaded", [0.0, 0.3])
def test_where_notes_stand_out_publisher_and_leaves_are_named(loaded: float) -> None:
    cells, published = record_ring(1, loaded=loaded)
    seen = look(cells, published)
    assert seen.publications == len(published)
    assert seen.publisher == NODES[0]
    assert set(seen.readers) == {NODES[2], NODES[9]}
    assert set(seen.notes) == {(NODES[u], NODES[v]) for u, below in TREE.items() for v in below}
    assert len(seen.links) == len(NODES)
    assert told(seen.scores) > 0.9
    assert all(seen.volumes[NODES[node]] > seen.volumes[NODES[5]] for node in (1, 2, 9, 10, 11))


def test_constant_cells_show_nothing_whatever_is_in_them() -> None:
    seen = look(sort_by_time(heartbeats(Random(2), 10, 1200)), [500_000, 2_000_000])
    assert (seen.publications, seen.publisher, seen.readers, dict(seen.notes)) == (0, None, (), {})
    assert told(seen.scores) == 0.5


def test_volumes_of_constant_cells_are_chance_over_many_records() -> None:
    """The null control."""
    values = []
    for seed in range(40):
        rng = Random(seed)
        cells = sort_by_time(heartbeats(rng, 4, 1200))
        values.append(told(look(cells, [rng.randrange(4_000_000) for _ in range(6)]).volumes))
    assert abs(sum(values) / len(values) - 0.5) < 0.1

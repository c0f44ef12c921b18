from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.array_observer import PublicationWaves, find_notifications
from support.ring_traffic import (
    BEAT,
    BEAT_US,
    NODES,
    NOTE,
    SIZE,
    columns,
    heartbeats,
    publication,
    record_ring,
    sort_by_time,
)
from veilcast.lab.attack.observer import publication_waves
from veilcast.observe import CellRow

OTHER = {5: [6], 6: [7]}


def found(cells: list[CellRow]) -> PublicationWaves:
    return find_notifications(*columns(cells), BEAT_US)


@pytest.mark.parametrize("loaded", [0.0, 0.3])
def test_on_a_wire_where_notes_stand_out_each_publication_is_a_wave(loaded: float) -> None:
    cells, published = record_ring(1, loaded=loaded)
    notes = found(cells)
    assert notes.row.tolist() == [row for row, cell in enumerate(cells) if cell.size == NOTE]
    assert notes.publication.max() + 1 == len(published)
    for number in range(len(published)):
        rows = notes.row[notes.publication == number]
        assert len(rows) == 5
        assert cells[rows[0]].src == NODES[0]


def test_publications_that_are_under_way_at_once_are_told_apart() -> None:
    rng = Random(2)
    pairs = [(publication(rng, moment), publication(rng, moment + 1_000, OTHER)) for moment in range(0, 10**6, 250_000)]
    cells = sort_by_time([cell for pair in pairs for each in pair for cell in each if cell.size == NOTE])
    t_us, src, dst, _ = columns(cells)
    which = publication_waves.assign_publications(t_us, src, dst)
    assert which.max() + 1 == 2 * len(pairs)
    assert all(len({NODES.index(cell.src) in OTHER for cell in np.array(cells)[which == wave]}) == 1 for wave in which)


def test_a_note_that_is_kept_for_long_begins_another_wave() -> None:
    t_us, hops = (
        np.array([0, publication_waves.FORWARD_WITHIN_US, 2 * publication_waves.FORWARD_WITHIN_US + 1]),
        np.arange(3, dtype=np.int32),
    )
    assert publication_waves.assign_publications(t_us, hops, hops + np.int32(1)).tolist() == [0, 0, 1]


def test_constant_cells_have_no_waves_whatever_is_in_them() -> None:
    assert not len(found(sort_by_time(heartbeats(Random(2), 10, 1200))).row)


def test_heartbeats_that_carry_something_are_no_notes() -> None:
    cells = sort_by_time(heartbeats(Random(3), 10, loaded=0.2))
    # Where only a few links carry such, the size is not usual, but the moment is.
    few = [cell for cell in cells if cell.size == BEAT or cell.src == NODES[4]]
    assert len({cell.size for cell in few}) == 2
    assert not len(found(few).row)


def test_an_empty_record_gives_no_waves() -> None:
    assert not len(found([]).row)


def test_the_order_of_rows_does_not_matter() -> None:
    cells, _ = record_ring(4, 4)
    order = np.random.default_rng(4).permutation(len(cells))
    plain, shuffled = found(cells), found([cells[row] for row in order])
    assert [cells[row] for row in plain.row] == [cells[order[row]] for row in shuffled.row]
    assert plain.publication.tolist() == shuffled.publication.tolist()


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=60))
def test_a_wave_continues_only_from_recent_receivers(notes: list[tuple[int, int, int]]) -> None:
    t_us, src, dst = np.array(sorted(notes), np.int64).reshape(-1, 3).T
    which = publication_waves.assign_publications(t_us, src.astype(np.int32), dst.astype(np.int32))
    had: dict[tuple[int, int], int] = {}
    begun = 0
    for now, u, v, wave in zip(t_us.tolist(), src.tolist(), dst.tolist(), which.tolist(), strict=True):
        if wave == begun:
            begun += 1
            assert all(now - at > publication_waves.FORWARD_WITHIN_US for (node, _), at in had.items() if node == u)
        else:
            assert now - had[u, wave] <= publication_waves.FORWARD_WITHIN_US
        had[u, wave] = had[v, wave] = now

"""The paper's attacker: it must succeed on a wire that was made to give it what it needs, and find nothing on none."""

from __future__ import annotations

from random import Random

import pytest

from veilcast.cli import observer
from veilcast.observe import Cell

BEAT_US = 125_000
NODES = [f"127.{number}.0.1:4000" for number in range(1, 13)]
RING = [(u, v) for i, u in enumerate(NODES) for v in (NODES[i - 1], NODES[(i + 1) % len(NODES)])]
TREE = {0: [1, 11], 1: [2], 11: [10], 10: [9]}
"""Who passes notes on to whom: 0 publishes, and 2 and 9 are leaves."""
READERS = [NODES[2], NODES[9], NODES[1]]
NOTE, BEAT, LOADED, ACK = 444, 80, 152, 60


def heartbeats(rng: Random, seconds: int, size: int = BEAT, *, loaded: float = 0.0) -> list[Cell]:
    """One to each neighbour in every period, at a phase of each node; some carry more than others."""
    phases = {node: rng.randrange(BEAT_US) for node in NODES}
    return [
        Cell(
            "r",
            0,
            phases[src] + beat * BEAT_US + rng.randrange(300),
            src,
            dst,
            LOADED if rng.random() < loaded else size,
        )
        for src, dst in RING
        for beat in range(seconds * 1_000_000 // BEAT_US)
    ]


def publications(rng: Random, seconds: int) -> tuple[list[Cell], list[int]]:
    cells: list[Cell] = []
    moments = [500_000 * number + rng.randrange(200_000) for number in range(1, 2 * seconds - 1)]
    for moment in moments:
        due = [(0, moment)]
        while due:
            node, now = due.pop(0)
            for child in TREE.get(node, []):
                cells.append(Cell("r", 0, now, NODES[node], NODES[child], NOTE))
                cells.append(Cell("r", 0, now + 11_000, NODES[child], NODES[node], ACK))
                due.append((child, now + 2_000 + rng.randrange(3_000)))
    return cells, moments


def in_time(cells: list[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.t_us)


@pytest.mark.parametrize("loaded", [0.0, 0.3])
def test_on_a_wire_where_notes_stand_out_publisher_and_leaves_are_named(loaded: float) -> None:
    rng = Random(1)
    notes, moments = publications(rng, 10)
    acks = [Cell("r", 0, rng.randrange(10_000_000), src, dst, ACK) for src, dst in RING for _ in range(20)]
    cells = in_time([*heartbeats(rng, 10, loaded=loaded), *acks, *notes])
    sight = observer.look(cells, BEAT_US)
    assert sight.publications == len(moments)
    assert sight.publisher == NODES[0]
    assert sight.readers == tuple(sorted([NODES[2], NODES[9]]))
    assert set(sight.notes) == {(NODES[u], NODES[v]) for u, below in TREE.items() for v in below}
    others = NODES[1:]
    assert observer.auc({node: sight.scores.get(node, 0.0) for node in others}, READERS) > 0.9
    scores = observer.volumes(cells, moments, others)
    assert all(scores[NODES[node]] > scores[NODES[5]] for node in (1, 2, 9, 10, 11))


def test_constant_cells_show_nothing_whatever_is_in_them() -> None:
    rng = Random(2)
    cells = in_time(heartbeats(rng, 10, 1200))
    sight = observer.look(cells, BEAT_US)
    assert (sight.publications, sight.publisher, sight.readers, dict(sight.notes)) == (0, None, (), {})
    assert observer.auc({node: sight.scores.get(node, 0.0) for node in NODES[1:]}, READERS) == 0.5


def test_volumes_of_constant_cells_are_chance_over_many_records() -> None:
    values = []
    for seed in range(40):
        rng = Random(seed)
        cells = in_time(heartbeats(rng, 4, 1200))
        moments = [rng.randrange(4_000_000) for _ in range(6)]
        values.append(observer.auc(observer.volumes(cells, moments, NODES[1:]), READERS))
    assert abs(sum(values) / len(values) - 0.5) < 0.1


def test_heartbeats_that_carry_something_are_no_notes() -> None:
    cells = in_time(heartbeats(Random(3), 10, loaded=0.2))
    # Where only a few links carry such, the size is not usual, but the moment is.
    few = [cell for cell in cells if cell.size == BEAT or cell.src == NODES[4]]
    assert observer.look(few, BEAT_US).publications == 0


def test_an_empty_record_is_no_error() -> None:
    assert observer.look([], BEAT_US).publications == 0
    assert observer.volumes([], [1], NODES) == dict.fromkeys(NODES, 0.0)


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert observer.auc({"a": 2, "b": 1, "c": 0}, ["a"]) == 1
    assert observer.auc({"a": 0, "b": 1, "c": 0}, ["a"]) == 0.25
    assert observer.auc({"a": 1}, ["a"]) == 0.5
    low, high = observer.auc_by_chance(5, 18)
    assert low == pytest.approx(1 - high)
    assert 0.75 < high < 0.85

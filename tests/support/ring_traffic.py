"""Wires of a ring as a global observer sees them: heartbeats, and notifications that stand out from them."""

from __future__ import annotations

from random import Random

import numpy as np

from veilcast.observe import CellRow

BEAT_US = 125_000
SIZE = 12
NODES = [f"127.{number}.0.1:4000" for number in range(1, SIZE + 1)]
RING = [(u, v) for u in range(SIZE) for v in ((u - 1) % SIZE, (u + 1) % SIZE)]
TREE = {0: [1, 11], 1: [2], 11: [10], 10: [9]}
"""Children by forwarder: 0 publishes, and 2 and 9 are leaves."""
NOTE, BEAT, LOADED, ACK = 444, 80, 152, 60


def heartbeats(rng: Random, seconds: int, size: int = BEAT, *, loaded: float = 0.0) -> list[CellRow]:
    """One cell to each neighbour in every period, at each node's phase; some carry a payload."""
    phases = [rng.randrange(BEAT_US) for _ in range(SIZE)]
    return [
        cell(phases[src] + beat * BEAT_US + rng.randrange(300), src, dst, LOADED if rng.random() < loaded else size)
        for src, dst in RING
        for beat in range(seconds * 1_000_000 // BEAT_US)
    ]


def acknowledgements(rng: Random, seconds: int) -> list[CellRow]:
    return [cell(rng.randrange(seconds * 1_000_000), src, dst, ACK) for src, dst in RING for _ in range(2 * seconds)]


def publication(rng: Random, moment_us: int, tree: dict[int, list[int]] = TREE) -> list[CellRow]:
    """A notification of the tree's root, forwarded within milliseconds, and acknowledged."""
    found, due = [], [(next(iter(tree)), moment_us)]
    while due:
        node, now = due.pop(0)
        for child in tree.get(node, []):
            found += [cell(now, node, child, NOTE), cell(now + 11_000, child, node, ACK)]
            due.append((child, now + 2_000 + rng.randrange(3_000)))
    return found


def moments(rng: Random, seconds: int) -> list[int]:
    """Two publications a second."""
    return [500_000 * number + rng.randrange(200_000) for number in range(1, 2 * seconds - 1)]


def record_ring(seed: int, seconds: int = 10, *, loaded: float = 0.0) -> tuple[list[CellRow], list[int]]:
    """All cells in time order, and the times of publications."""
    rng = Random(seed)
    published = moments(rng, seconds)
    notes = [each for moment in published for each in publication(rng, moment)]
    return sort_by_time([*heartbeats(rng, seconds, loaded=loaded), *acknowledgements(rng, seconds), *notes]), published


def cell(t_us: int, src: int, dst: int, size: int) -> CellRow:
    return CellRow("r", 0, t_us, NODES[src], NODES[dst], size)


def sort_by_time(cells: list[CellRow]) -> list[CellRow]:
    return sorted(cells, key=lambda each: each.t_us)


def columns(cells: list[CellRow]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns time, source, destination, size."""
    place = {node: number for number, node in enumerate(NODES)}
    return (
        np.array([each.t_us for each in cells], np.int64),
        np.array([place[each.src] for each in cells], np.int32),
        np.array([place[each.dst] for each in cells], np.int32),
        np.array([each.size for each in cells], np.int64),
    )

"""Records of made-up networks for audits: one in which notifications stand out, and a silent one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from support.ring_traffic import NODES, NOTE, heartbeats, record_ring, sort_by_time
from veilcast.observe import CellRow, TableWriter

READERS = (NODES[2], NODES[9], NODES[1])
PUBLISHER = NODES[0]


def write_loud_network(directory: Path, seconds: int = 20) -> Path:
    return write_cells(directory, record_ring(1, seconds)[0])


def write_silent_network(directory: Path, seconds: int = 20) -> Path:
    return write_cells(directory, sort_by_time(heartbeats(Random(2), seconds, 1200)))


def write_cells(directory: Path, cells: list[CellRow]) -> Path:
    with TableWriter(directory) as table:
        table.extend(cells)
    return directory


def members(path: Path) -> Path:
    rows = [{"node": PUBLISHER, "role": "publisher"}, *({"node": node, "role": "subscriber"} for node in READERS)]
    rows += [{"node": node, "role": "forwarder"} for node in NODES if node != PUBLISHER and node not in READERS]
    path.write_text(json.dumps(rows))
    return path


STRANGERS = [f"10.9.0.{number}:4000" for number in range(1, 5)]


def other_network(rng: Random, seconds: int, nodes: Sequence[str] = STRANGERS, note: int = NOTE) -> list[CellRow]:
    """Another network on the same port: heartbeats of its own size, and far more notifications."""
    found = []
    for src in nodes:
        for dst in nodes:
            if src == dst:
                continue
            phase = rng.randrange(50_000)
            found += [_cell(phase + beat * 50_000, src, dst, 1200) for beat in range(seconds * 20)]
    for _ in range(40 * seconds):
        src, dst = rng.sample(nodes, 2)
        found.append(_cell(rng.randrange(seconds * 1_000_000), src, dst, note))
    return found


def make_probes(
    rng: Random, seconds: int, nodes: Sequence[str], *, answered: bool = False, cells: int = 400
) -> list[CellRow]:
    """Strangers that send datagrams of a notification's size to nodes, which may answer."""
    found = []
    for _ in range(cells):
        moment, stranger, node = rng.randrange(seconds * 1_000_000), rng.choice(STRANGERS), rng.choice(list(nodes))
        found.append(_cell(moment, stranger, node, NOTE))
        if answered:
            found.append(_cell(moment + 900, node, stranger, NOTE))
    return found


def _cell(t_us: int, src: str, dst: str, size: int) -> CellRow:
    return CellRow("r", 0, t_us, src, dst, size)

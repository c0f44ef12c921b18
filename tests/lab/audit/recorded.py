"""Made-up networks as their wires were recorded, for audits: one in which notes stand out, and one that is silent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

from veilcast.observe import Cell, TableWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "attack"))
from wires import NODES, heartbeats, in_time, record

READERS = (NODES[2], NODES[9], NODES[1])
PUBLISHER = NODES[0]


def loud(directory: Path, seconds: int = 20) -> Path:
    return written(directory, record(1, seconds)[0])


def silent(directory: Path, seconds: int = 20) -> Path:
    return written(directory, in_time(heartbeats(Random(2), seconds, 1200)))


def written(directory: Path, cells: list[Cell]) -> Path:
    with TableWriter(directory) as table:
        table.extend(cells)
    return directory


def members(path: Path) -> Path:
    rows = [{"node": PUBLISHER, "role": "publisher"}, *({"node": node, "role": "subscriber"} for node in READERS)]
    rows += [{"node": node, "role": "forwarder"} for node in NODES if node != PUBLISHER and node not in READERS]
    path.write_text(json.dumps(rows))
    return path

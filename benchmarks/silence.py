"""Can an observer of every wire tell when something happens?

24 nodes on real sockets, in phases of a second each (`tests/live/phases.py`): idle, publishing, the edge of an epoch
with all joins to the meshes of the next, changes of keys. A gradient-boosted classifier sees the gaps between datagrams
and their sizes, for each node and quarter of a second, and is to tell busy phases from idle ones; how it is judged is
in `tests/live/telltale.py`. As a control the same in the papers' profile, where publishing shows. 200 phases take five
minutes, and the control two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event, Machine
from veilcast.mesh.config import Config

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "live"))
from phases import EPOCH_US, MESH, PHASE_US, SECOND_US, SLOT_US, Phase, enact, features, plan
from telltale import Samples, judge
from town import Town, TownMesh

from wire import Wire


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phases", type=int, default=200, help="of the hardened profile (200)")
    parser.add_argument("--save", type=Path, help="keep what was seen in this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = {
        "hardened": watch(HARDENED, options.phases, options.save),
        "paper": watch(PAPER, min(CONTROL_PHASES, options.phases), None),
    }
    if options.json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))
        return
    for name, town in found.items():
        print(f"{name}: {town['datagrams']:,} datagrams of {town['sizes']} sizes; {town['delivered']:.1%} delivered")
        for kind, row in town["told"].items():
            verdict = "silent" if row["silent"] else "shows"
            print(
                f"  idle or {kind:<14}{row['area']:>7.3f}   by chance {row['low']:.3f} to {row['high']:.3f}   {verdict}"
            )
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def watch(population: TownMesh, count: int, save: Path | None) -> dict[str, Any]:
    phases = plan(count, Random(SEED))
    duration_us = phases[-1].start_us + SLOT_US + 2 * SECOND_US
    wires: dict[Address, Wire] = {}
    deliveries: Counter[bytes] = Counter()
    town: Town

    def around(machine: Machine, address: Address) -> Machine:
        wires[address] = Wire(machine, lambda: town.now)
        return wires[address]

    def count_notes(address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            deliveries[event.note.publication.body] += 1

    town = Town(seed=SEED, epoch_us=EPOCH_US, around=around, on_event=count_notes)
    town.settle(population, duration_us)
    publisher, readers = population.roles(SEED)
    notes = enact(phases, town, publisher, population.addresses(), Random(SEED))
    asyncio.run(town.run(duration_us))
    samples = seen_in(phases, wires, town.start)
    if save is not None:
        np.savez(save, *samples, kinds=np.array([phase.kind for phase in phases]))
    kinds = np.array([phase.kind for phase in phases])[samples.phases]
    told = {}
    for kind in (*KINDS, "anything"):
        chosen = (kinds == "idle") | (kinds == kind) if kind in KINDS else np.ones(len(kinds), dtype=bool)
        verdict = judge(Samples(*(column[chosen] for column in samples)), SEED)
        told[kind] = {**verdict._asdict(), "silent": verdict.silent}
    sizes = {size for wire in wires.values() for _, lengths in wire.seen.values() for size in lengths}
    return {
        "datagrams": sum(len(times) for wire in wires.values() for times, _ in wire.seen.values()),
        "sizes": len(sizes),
        "phases": len(phases),
        "samples": len(samples.labels),
        "delivered": deliveries.total() / max(1, notes * len(readers)),
        "told": told,
    }


def seen_in(phases: list[Phase], wires: dict[Address, Wire], start_us: int) -> Samples:
    rows, labels, numbers = [], [], []
    for number, phase in enumerate(phases):
        for wire in wires.values():
            for part in range(PARTS):
                begin_us = start_us + phase.start_us + part * PHASE_US // PARTS
                row = features(wire.seen, begin_us, begin_us + PHASE_US // PARTS)
                if row is not None:
                    rows.append(row)
                    labels.append(int(phase.kind != "idle"))
                    numbers.append(number)
    return Samples(np.array(rows), np.array(labels), np.array(numbers))


SEED = 1
PARTS = 4
CONTROL_PHASES = 60
KINDS = ("publishing", "edge", "rekeying")
HARDENED = TownMesh(
    nodes=24,
    subscribers=0.25,
    notes=0,
    mesh=MESH,
    link=LinkConfig("cells", 16),
    checks=("once", "readers"),
    port=4082,
)
PAPER = msgspec.structs.replace(
    HARDENED,
    subscribers=0.9,
    mesh=Config(heartbeat_us=MESH.heartbeat_us, silent_periods=MESH.silent_periods),
    link=LinkConfig("prompt"),
)

if __name__ == "__main__":
    main()

"""Can an observer of every wire tell when something happens?

24 nodes on real sockets, in phases of a second each (`tests/live/phases.py`): idle, publishing, the edge of an epoch
with all joins to the meshes of the next, changes of keys. A gradient-boosted classifier sees the gaps between datagrams
and their sizes, for each node and quarter of a second, and is to tell busy phases from idle ones; how it is judged is
in `tests/live/telltale.py`. As a control the same in the papers' profile, where publishing shows. A town has 32 phases
and takes a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.live.phases import EPOCH_US, MESH, NOTES, PHASE_US, SECOND_US, SLOT_US, Phase, enact, features, plan
from veilcast.lab.live.tally import Tally
from veilcast.lab.live.town import Town, TownMesh
from veilcast.lab.live.wire import Sightings, Wire
from veilcast.link import generations
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Machine
from veilcast.mesh.config import Config
from veilcast.sim.engine import START_US

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "live"))
from telltale import Samples, judge


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="towns of the hardened profile, a minute each (7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = {
        "hardened": watch(HARDENED, options.rounds),
        "paper": watch(PAPER, 1),
    }
    if options.json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))
        return
    for name, town in found.items():
        sizes = f"{len(town['sizes'])} sizes" if len(town["sizes"]) > 1 else "one size"
        print(f"{name}: {town['phases']} phases, {town['datagrams']:,} datagrams of {sizes}")
        for kind, row in town["told"].items():
            verdict = "silent" if row["silent"] else "shows"
            print(
                f"  idle or {kind:<14}{row['area']:>7.3f}   by chance {row['low']:.3f} to {row['high']:.3f}   {verdict}"
            )
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def watch(population: TownMesh, rounds: int) -> dict[str, Any]:
    """Several towns, one after the other, each with roles, slots and an order of phases of its own."""
    seen = [one_town(population, seed) for seed in range(1, rounds + 1)]
    samples = Samples(*(np.concatenate(columns) for columns in zip(*(each.samples for each in seen), strict=True)))
    kinds = np.concatenate([each.kinds for each in seen])
    told = {}
    for kind in (*KINDS, "anything"):
        chosen = (kinds == "idle") | (kinds == kind) if kind in KINDS else np.ones(len(kinds), dtype=bool)
        verdict = judge(Samples(*(column[chosen] for column in samples)), rounds)
        told[kind] = {**verdict._asdict(), "silent": verdict.silent}
    return {
        "datagrams": sum(each.datagrams for each in seen),
        "sizes": sorted(set().union(*(each.sizes for each in seen))),
        "phases": rounds * PHASES,
        "samples": len(samples.labels),
        "delivered": sum(each.delivered for each in seen) / rounds,
        "on_time": sum(each.on_time for each in seen) / rounds,
        "told": told,
    }


class Seen(NamedTuple):
    samples: Samples
    kinds: NDArray[np.str_]
    datagrams: int
    sizes: set[int]
    delivered: float
    on_time: float
    """The share of gaps within a hundredth of the period."""


def one_town(population: TownMesh, seed: int) -> Seen:
    """Each node has a process of its own, as in life: in one for all, the work of each would delay the cells of all."""
    phases = plan(PHASES, Random(seed))
    began_ns = time.monotonic_ns()
    answers = []
    for address in population.addresses():
        ours, theirs = multiprocessing.Pipe()
        arguments = (population, seed, phases, address, began_ns, theirs)
        multiprocessing.Process(target=one_node, args=arguments, daemon=True).start()
        theirs.close()
        answers.append(ours)
    wires, deliveries = zip(*(answer.recv() for answer in answers), strict=True)
    samples = seen_in(phases, wires, 1000 * seed)
    streams = [stream for seen in wires for stream in seen.values()]
    gaps = np.concatenate([np.diff(np.frombuffer(times, dtype=np.int64)) for times, _ in streams])
    notes = NOTES * sum(phase.kind == "publishing" for phase in phases)
    return Seen(
        samples,
        np.array([phase.kind for phase in phases])[samples.phases - 1000 * seed],
        datagrams=sum(len(times) for times, _ in streams),
        sizes={size for _, lengths in streams for size in lengths},
        delivered=sum(deliveries) / (notes * len(population.roles(seed)[1])),
        on_time=float(np.mean(np.abs(gaps - PERIOD_US) < PERIOD_US / 100)),
    )


def one_node(
    population: TownMesh, seed: int, phases: list[Phase], address: Address, began_ns: int, answer: Connection
) -> None:
    """A process: what its node sent, and how many notes it got."""
    duration_us = phases[-1].start_us + SLOT_US + SECOND_US
    tally = Tally(population, seed)
    town: Town

    def around(machine: Machine, _: Address) -> Machine:
        return Wire(machine, lambda: town.now)

    town = Town(seed=seed, epoch_us=EPOCH_US, began_ns=began_ns, here=[address], around=around, on_event=tally.take)
    town.settle(population, duration_us)
    generations.EARLIEST_US = 0  # type: ignore[misc]  # Or peers would refuse keys that are renewed so often.
    enact(phases, town, population.roles(seed)[0], population.addresses(), Random(seed))
    wires: list[Wire] = []

    async def run() -> None:
        asyncio.get_running_loop().call_later(1, lambda: wires.append(town.machine(address)))
        await town.run(duration_us)

    asyncio.run(run())
    answer.send((wires[0].seen, tally.delivered))


def seen_in(phases: list[Phase], wires: Iterable[Sightings], first: int) -> Samples:
    rows, labels, numbers = [], [], []
    for number, phase in enumerate(phases, first):
        for seen in wires:
            for part in range(PARTS):
                begin_us = START_US + phase.start_us + part * PHASE_US // PARTS
                row = features(seen, begin_us, begin_us + PHASE_US // PARTS)
                if row is not None:
                    rows.append(row)
                    labels.append(int(phase.kind != "idle"))
                    numbers.append(number)
    return Samples(np.array(rows), np.array(labels), np.array(numbers))


PARTS = 4
PHASES = 32
PERIOD_US = SECOND_US // 16
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

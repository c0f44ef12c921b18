"""Do 64 nodes on two cores keep their cells on schedule, and what does each cost?

Two processes with 32 nodes each, every node with eight links of 4 cells a second on real sockets, in the hardened
profile, while one of them publishes a note each second. How late cells leave is shown beside a process
that does nothing but sleep until its next beat, as often as one process has cells to send: what the system and the
event loop alone make late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from veilcast.lab.runs.mesh.loopback_network import (
    DeliveryStats,
    LoopbackNetwork,
    LoopbackPopulation,
    WireRecorder,
    sample_quantile,
)
from veilcast.link.config import LinkConfig
from veilcast.machine import Machine
from veilcast.mesh.config import HardeningConfig, MeshConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.process_memory import resident_kib


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="that are measured, once the mesh has formed (30)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = measure(options.seconds * 1_000_000)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'late by':<24}{'p50':>10}{'p95':>10}{'p99':>10}{'in time':>10}")
    for name in ("cells", "a bare sleeper"):
        row = found[name]
        late = "".join(f"{row[share]:>7.1f} ms" for share in ("p50_ms", "p95_ms", "p99_ms"))
        print(f"  {name:<22}{late}{row['on_time']:>10.2%}")
    print(f"{found['cells_seen']:,} cells; {found['cpu']:.2%} of a core and {found['kib']:,.0f} KiB for each node")
    print(f"delivered {found['delivered']:,} of {found['pairs']:,}; load of this machine {found['load']:.1f}")


def measure(seconds_us: int) -> dict[str, Any]:
    began_ns = time.monotonic_ns()
    notes = max(0, seconds_us // EVERY_US - AFTER)
    population = LoopbackPopulation(
        nodes=64,
        neighbours=8,
        rewire=0.2,
        subscribers=0.2,
        notes=notes,
        first_us=FIRST_US,
        every_us=EVERY_US,
        mesh=MeshConfig("hardened", hardening=HARDENING, heartbeat_us=500_000, silent_periods=20),
        link=LinkConfig("cells", 4),
        checks=("once", "order", "readers"),
        port=4080,
    )
    duration_us = FIRST_US + seconds_us
    jobs: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (half, (population, 0, began_ns, duration_us)),
        (half, (population, 1, began_ns, duration_us)),
        (sleeper, (began_ns, duration_us)),
    ]
    answers = []
    for work, arguments in jobs:
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=work, args=(*arguments, theirs), daemon=True).start()
        theirs.close()
        answers.append(ours)
    *halves, slept = [answer.recv() for answer in answers]
    late = [each for part in halves for each in part["late"]]
    if any(part["violations"] for part in halves):
        raise SystemExit("a result is wrong")
    return {
        "cells": lateness(late),
        "a bare sleeper": lateness(slept),
        "cells_seen": len(late),
        "cpu": sum(part["cpu"] for part in halves) / 64,
        "kib": sum(part["kib"] for part in halves) / 64,
        "delivered": sum(part["delivered"] for part in halves),
        "pairs": halves[0]["pairs"],
        "load": os.getloadavg()[0],
    }


def lateness(late: list[int]) -> dict[str, float]:
    shares = {f"p{share}_ms": sample_quantile(late, share / 100) / 1000 for share in (50, 95, 99)}
    return {**shares, "on_time": sum(each < PERIOD_US / 4 for each in late) / len(late)}


def half(population: LoopbackPopulation, part: int, began_ns: int, duration_us: int, answer: Connection) -> None:
    """A process: every other node."""
    before = resident_kib()
    wires: list[WireRecorder] = []
    tally = DeliveryStats(population, SEED)
    town: LoopbackNetwork

    def around(machine: Machine, _: object) -> Machine:
        wires.append(WireRecorder(machine, lambda: town.now))
        return wires[-1]

    here = population.addresses()[part::2]
    town = LoopbackNetwork(seed=SEED, began_ns=began_ns, here=here, around=around, on_event=tally.record_event)
    town.settle(population, duration_us)
    begun: list[float] = []

    async def run() -> None:
        asyncio.get_running_loop().call_later(
            (town.start + FIRST_US - town.now) / 1e6, lambda: begun.append(time.process_time())
        )
        await town.run(duration_us)

    asyncio.run(run())
    spent = time.process_time() - begun[0]
    late = [late for wire in wires for at, late in wire.late if at >= town.start + FIRST_US]
    late += [PERIOD_US] * max(0, 32 * 8 * (duration_us - FIRST_US - PERIOD_US) // PERIOD_US - len(late))
    answer.send(
        {
            "late": late,
            "cpu": spent / (duration_us - FIRST_US) * 1e6,
            "kib": resident_kib() - before,
            "delivered": tally.delivered,
            "pairs": tally.pairs,
            "violations": town.violations,
        }
    )


def sleeper(began_ns: int, duration_us: int, answer: Connection) -> None:
    """A process that sleeps, and says how late it woke."""
    late: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        beat, end = began_ns / 1e9 + FIRST_US / 1e6, (began_ns + duration_us * 1000) / 1e9
        while beat < end:
            await asyncio.sleep(beat - loop.time())
            late.append(int((loop.time() - beat) * 1e6))
            beat += BEAT_S

    asyncio.run(run())
    answer.send(late)


SEED = 1
FIRST_US = 45_000_000
EVERY_US = 1_000_000
AFTER = 8
"""Seconds at the end without a new note, for the last to arrive."""
PERIOD_US = 250_000
BEAT_S = 1 / (32 * 8 * 4)
HARDENING = HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=16)

if __name__ == "__main__":
    main()

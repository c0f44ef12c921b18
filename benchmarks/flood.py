"""Do a node's cells leave on time while strangers flood it with datagrams that they made up?

A town of nine keeps links of 16 cells a second on real sockets. One of its nodes has this process for itself, the
others have another. A third sends it 20,000 datagrams a second from 200 ports of eight hosts that nobody knows: random
bytes as long as a cell, and every tenth a letter of a member's that was recorded. Rounds with and without take turns. A
cell is on time if it leaves within a quarter of its period after it was due; a slot without one counts as late. Memory
is what the node's process holds at the end of a round beyond what it held at its beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from veilcast.lab.runs.mesh.loopback_network import LoopbackNetwork, LoopbackPopulation, WireRecorder, sample_quantile
from veilcast.link.admission import AdmissionLimits, LinkAdmission
from veilcast.link.config import LinkConfig
from veilcast.link.identity import LinkIdentity
from veilcast.machine import Machine
from veilcast.mesh.config import MeshConfig
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import make_own_keyring
from veilcast.wire.geometry import CELL

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.process_memory import resident_kib


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="of either kind (4)")
    parser.add_argument("--rate", type=int, default=20_000, help="datagrams a second (20,000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = measure(options.rounds, options.rate)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'a second':<22}{'arriving':>10}{'on time':>9}{'p50 late':>11}{'p99 late':>11}{'memory':>12}{'CPU':>6}")
    for name, row in found["rows"].items():
        late = f"{row['p50_ms']:>8.1f} ms{row['p99_ms']:>8.1f} ms"
        held = f"{row['memory_kib']:>8,.0f} KiB{row['cpu']:>6.0%}"
        print(f"  {name:<20}{row['received']:>10,.0f}{row['on_time']:>9.2%}{late}{held}")
    print(f"load of this machine {found['load']:.1f}")


def measure(rounds: int, rate: int) -> dict[str, Any]:
    duration_us = WARM_UP_US + 2 * rounds * ROUND_US + AFTER_US
    began_ns = time.monotonic_ns()
    neighbours = multiprocessing.Process(target=others, args=(began_ns, duration_us), daemon=True)
    neighbours.start()
    ours, theirs = multiprocessing.Pipe()
    enemy = multiprocessing.Process(target=flood, args=(theirs, letter()), daemon=True)
    enemy.start()
    wires: list[WireRecorder] = []
    town: LoopbackNetwork
    town = LoopbackNetwork(
        seed=SEED, began_ns=began_ns, here=[VICTIM], around=lambda machine, _: tap_machine(machine, wires, town)
    )
    town.settle(POPULATION, duration_us)
    seen: dict[str, list[dict[str, Any]]] = {QUIET: [], f"{rate:,} datagrams": []}

    async def watch() -> None:
        await asyncio.sleep(WARM_UP_US / 1e6)
        for _ in range(rounds):
            for name, wanted in zip(seen, (0, rate), strict=True):
                ours.send(wanted)
                seen[name].append(await one_round(town, wires[0]))
        ours.send(None)

    async def run() -> None:
        await asyncio.gather(town.run(duration_us), watch())

    asyncio.run(run())
    neighbours.join()
    enemy.join()
    if town.violations:
        raise SystemExit(f"a result is wrong: {town.violations[0]}")
    return {"rows": {name: sum_rounds(several) for name, several in seen.items()}, "load": os.getloadavg()[0]}


async def one_round(town: LoopbackNetwork, wire: WireRecorder) -> dict[str, Any]:
    driver = town.hosts[VICTIM].driver
    assert driver is not None
    begun, spent, received, memory = town.now, time.process_time(), driver.counts.received, resident_kib()
    await asyncio.sleep(ROUND_US / 1e6)
    late = [late for at, late in wire.late if at >= begun]
    # Slots in which nothing left.
    late += [PERIOD_US] * max(0, 8 * (ROUND_US // PERIOD_US - 1) - len(late))
    return {
        "late": late,
        "received": (driver.counts.received - received) / ROUND_US * 1e6,
        "cpu": (time.process_time() - spent) / ROUND_US * 1e6,
        "memory_kib": resident_kib() - memory,
    }


def sum_rounds(rounds: list[dict[str, Any]]) -> dict[str, float]:
    late = [each for one in rounds for each in one["late"]]
    return {
        "received": sum(one["received"] for one in rounds) / len(rounds),
        "on_time": sum(each < PERIOD_US / 4 for each in late) / len(late),
        "p50_ms": sample_quantile(late, 0.5) / 1000,
        "p99_ms": sample_quantile(late, 0.99) / 1000,
        "memory_kib": max(one["memory_kib"] for one in rounds),
        "cpu": sum(one["cpu"] for one in rounds) / len(rounds),
    }


def tap_machine(machine: Machine, wires: list[WireRecorder], town: LoopbackNetwork) -> Machine:
    wires.append(WireRecorder(machine, lambda: town.now))
    return wires[-1]


def others(began_ns: int, duration_us: int) -> None:
    """Another process: the neighbours."""
    town = LoopbackNetwork(
        seed=SEED, began_ns=began_ns, here=[each for each in POPULATION.addresses() if each != VICTIM]
    )
    town.settle(POPULATION, duration_us)
    asyncio.run(town.run(duration_us))


def flood(orders: Connection, recorded: bytes) -> None:
    """A third process, which sends datagrams at the rate that it was told last, until it is told to end."""
    senders = []
    for number in range(SOURCES):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind((f"127.77.0.{number % 8 + 1}", 0))
        senders.append(sender)
    host, _, port = VICTIM.rpartition(":")
    forged = [os.urandom(CELL) for _ in range(9)] + [recorded]
    rate: int | None = orders.recv()
    while rate is not None:
        begun, sent = time.perf_counter(), 0
        while not orders.poll():
            while sent < (time.perf_counter() - begun) * rate:
                senders[sent % SOURCES].sendto(forged[sent // SOURCES % 10], (host, int(port)))
                sent += 1
            time.sleep(0.0005)
        rate = orders.recv()
    for sender in senders:
        sender.close()


def letter() -> bytes:
    """A letter to the victim that a member wrote, and a stranger recorded."""
    party = LinkIdentity(make_own_keyring("forwarder", "absent"), os.urandom)
    return LinkAdmission(party, AdmissionLimits(os.urandom)).initiate(VICTIM, START_US)


SEED = 1
POPULATION = LoopbackPopulation(
    nodes=9,
    neighbours=8,
    rewire=0.0,
    notes=0,
    mesh=MeshConfig("paper"),
    link=LinkConfig("cells", 16),
    checks=("once",),
    port=4078,
)
VICTIM = POPULATION.addresses()[0]
PERIOD_US = 1_000_000 // 16
WARM_UP_US = 8_000_000
ROUND_US = 4_000_000
AFTER_US = 3_000_000
SOURCES = 200
QUIET = "no flood"

if __name__ == "__main__":
    main()

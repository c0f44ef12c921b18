"""Does everything arrive where a third of all datagrams is lost?

50 nodes of a mesh over links of cells, on real sockets, with a relay in between that loses each datagram with
probability 0.3. A publisher sends notes at a steady pace; 20 subscribers acknowledge what they get. Counted are pairs
of a note and a live subscriber. The mesh has formed before the first note, under the same loss. The record of 30,000
pairs is `python benchmarks/loss.py --notes 1500`, which takes six minutes; 300 notes take two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from veilcast.lab.runs.mesh.loopback_network import DeliveryStats, LoopbackNetwork, LoopbackPopulation, sample_quantile
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import HardeningConfig, MeshConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.lossy_network import LossyNetwork, home_address


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--notes", type=int, default=300, help="notes that are published (300)")
    parser.add_argument("--profile", choices=["hardened", "paper"], default="hardened", help="of the mesh (hardened)")
    parser.add_argument("--loss", type=float, default=0.3, help="the share of datagrams that is lost (0.3)")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    population = LoopbackPopulation(
        nodes=options.nodes,
        subscribers=0.4,
        notes=options.notes,
        first_us=FIRST_US,
        every_us=EVERY_US,
        mesh=MeshConfig(options.profile, heartbeat_us=500_000, silent_periods=20, hardening=HARDENING),
        link=LinkConfig("cells", 16),
        checks=("once", "order", "intact", "readers"),
        port=4079,
    )
    found = asyncio.run(measure(population, options.loss))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{options.nodes} nodes, {options.profile}, {found['lost']:.1%} of {found['datagrams']:,} datagrams lost")
    print(f"  {'pairs of note and subscriber':<34}{found['pairs']:>10,}")
    print(f"  {'delivered':<34}{found['delivered']:>10,}{found['share']:>10.3%}")
    print(f"  {'delivered again':<34}{found['repeated']:>10,}")
    print(f"  {'after, median and 99 %':<34}{found['p50_s']:>8.2f} s{found['p99_s']:>8.2f} s")
    print(f"  {'load of this machine':<34}{found['load']:>10.1f}")


async def measure(population: LoopbackPopulation, loss: float) -> dict[str, Any]:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=between, args=(population, loss, theirs), daemon=True)
    child.start()
    theirs.close()
    ours.recv()
    tally = DeliveryStats(population, SEED)
    town = LoopbackNetwork(seed=SEED, home=home_address, on_event=tally.record_event)
    duration_us = population.first_us + population.notes * population.every_us + AFTER_US
    town.settle(population, duration_us)
    begun = time.process_time()
    await town.run(duration_us)
    spent = time.process_time() - begun
    ours.send("over")
    taken, lost = ours.recv()
    child.join()
    if town.violations:
        raise SystemExit(f"a result is wrong: {town.violations[0]}")
    return {
        "pairs": tally.pairs,
        "delivered": tally.delivered,
        "share": tally.delivered / tally.pairs,
        "repeated": tally.repeated,
        "missing": tally.missing()[:20],
        "p50_s": sample_quantile(tally.late_us, 0.5) / 1e6,
        "p99_s": sample_quantile(tally.late_us, 0.99) / 1e6,
        "datagrams": taken,
        "lost": lost / max(taken, 1),
        "cores": spent / duration_us * 1e6,
        "load": os.getloadavg()[0],
    }


def between(population: LoopbackPopulation, loss: float, orders: Connection) -> None:
    """The other process: the relay, until told to end."""

    async def run() -> None:
        relay, over = LossyNetwork(population.addresses(), loss, Random(SEED)), asyncio.Event()
        relay.open()
        asyncio.get_running_loop().add_reader(orders.fileno(), over.set)
        orders.send("ready")
        await over.wait()
        relay.close()
        orders.send((relay.taken, relay.lost))

    asyncio.run(run())


SEED = 1
FIRST_US = 45_000_000
EVERY_US = 170_000
AFTER_US = 30_000_000
HARDENING = HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=32)

if __name__ == "__main__":
    main()

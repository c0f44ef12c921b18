"""Do eight hostile neighbours keep an honest network from its notes, or eat its memory?

24 nodes in the hardened profile on real sockets, each with sixteen neighbours. Eight of those around one reader are
members that send the worst they may, at 16 cells a second where the others have 4; they are
`tests/support/hostile_neighbour.py` and have a process of their own. Then the same with all honest. Counted are the
notes that
readers get, and what the process of the honest holds in memory at the end beyond what it held when the meshes stood.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

from veilcast.lab.runs.mesh.loopback_network import DeliveryStats, LoopbackNetwork, LoopbackPopulation, sample_quantile
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Machine
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.sim.wrappers import unwrap

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.hostile_neighbour import choose_hostile, make_hostile
from support.process_memory import resident_kib


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    found = {name: asyncio.run(one_town(hostile)) for name, hostile in (("all honest", False), ("eight hostile", True))}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'':<16}{'delivered':>16}{'median':>10}{'99 %':>9}{'memory':>12}{'CPU':>7}{'refused':>10}{'load':>7}")
    for name, row in found.items():
        delivered = f"{row['delivered']:,} of {row['pairs']:,}"
        took = f"{row['p50_s']:>8.2f} s{row['p99_s']:>7.2f} s"
        held = f"{row['memory_kib']:>8,.0f} KiB{row['cpu']:>7.0%}"
        print(f"  {name:<14}{delivered:>16}{took}{held}{row['refused']:>10,}{row['load']:>7.1f}")


async def one_town(hostile: bool) -> dict[str, Any]:
    began_ns = time.monotonic_ns()
    victim, enemies = choose_hostile(POPULATION, SEED, ENEMIES)
    child = multiprocessing.Process(target=others, args=(began_ns, enemies, victim if hostile else None), daemon=True)
    child.start()
    tally = DeliveryStats(POPULATION, SEED)
    here = [address for address in POPULATION.addresses() if address not in enemies]
    town = LoopbackNetwork(seed=SEED, began_ns=began_ns, here=here, on_event=tally.record_event)
    town.settle(POPULATION, DURATION_US)
    formed: list[tuple[float, float]] = []
    last: list[int] = []

    async def look() -> None:
        await asyncio.sleep((POPULATION.first_us + POPULATION.every_us * 20) / 1e6)
        formed.append((resident_kib(), time.process_time()))
        await asyncio.sleep((DURATION_US - POPULATION.first_us) / 1e6 - 10)
        last.append(sum(unwrap(town.machine(victim)).refused.values()))

    await asyncio.gather(town.run(DURATION_US), look())
    child.join()
    if town.violations:
        raise SystemExit(f"a result is wrong: {town.violations[0]}")
    memory, spent = formed[0]
    return {
        "pairs": tally.pairs,
        "delivered": tally.delivered,
        "p50_s": sample_quantile(tally.late_us, 0.5) / 1e6,
        "p99_s": sample_quantile(tally.late_us, 0.99) / 1e6,
        "memory_kib": resident_kib() - memory,
        "cpu": (time.process_time() - spent) / (DURATION_US - POPULATION.first_us) * 1e6,
        "refused": last[0],
        "load": os.getloadavg()[0],
    }


def others(began_ns: int, enemies: list[Address], victim: Address | None) -> None:
    """The other process: the enemies."""

    def around(machine: Machine, address: Address) -> Machine:
        return machine if victim is None else cast(Machine, make_hostile(machine, victim, enemies.index(address)))

    town = LoopbackNetwork(seed=SEED, began_ns=began_ns, here=enemies, around=around)
    town.settle(POPULATION, DURATION_US)
    asyncio.run(town.run(DURATION_US))


SEED = 1
ENEMIES = 8
POPULATION = LoopbackPopulation(
    nodes=24,
    neighbours=16,
    rewire=0.0,
    subscribers=0.25,
    notes=170,
    first_us=50_000_000,
    every_us=250_000,
    mesh=MeshConfig(
        "hardened",
        heartbeat_us=500_000,
        silent_periods=20,
        hardening=HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=16),
    ),
    link=LinkConfig("cells", 4),
    checks=("once", "order", "intact", "readers"),
    port=4084,
)
DURATION_US = POPULATION.first_us + POPULATION.notes * POPULATION.every_us + 15_000_000

if __name__ == "__main__":
    main()

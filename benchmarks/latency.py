"""How long does a note take in the hardened profile at 4 cells a second, for each link that it goes over?

40 nodes; notes come one at a time. A note goes from its publisher along a stem to the root, and from there to the
readers, and waits at every link for the next slot: half a period if nothing else waits. The claim is that the median is
under 1.5 periods a hop. Once in the simulator, over links that take a millisecond; once on sockets, on a machine that
may be busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from veilcast.lab.runs.mesh.loopback_network import LoopbackNetwork, LoopbackPopulation
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.sim.engine import START_US
from veilcast.sim.links import LinkDelays
from veilcast.sim.scenario import Scenario, ScenarioConfig, build_world

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.hop_counts import HopCounts, Trip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    found = {"simulated": sum_trips(simulate_trips()), "on sockets": sum_trips(asyncio.run(on_sockets()))}
    if as_json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))
        return
    print(f"{'':<14}{'deliveries':>11}{'hops':>6}{'median':>10}{'1.5 periods a hop':>20}{'periods a hop':>15}")
    for name, row in found.items():
        times = f"{row['median_s']:>8.2f} s{row['bound_s']:>18.2f} s{row['periods_a_hop']:>15.2f}"
        print(f"  {name:<12}{row['deliveries']:>11}{row['hops']:>6.0f}{times}")
    print(f"load of this machine {os.getloadavg()[0]:.1f}")


def sum_trips(trips: list[Trip]) -> dict[str, Any]:
    wanted = POPULATION.notes * len(POPULATION.roles(SEED)[1])
    if len(trips) != wanted:
        raise SystemExit(f"a result is wrong: {len(trips)} deliveries, not {wanted}")
    return {
        "deliveries": len(trips),
        "hops": median(trip.hops for trip in trips),
        "median_s": median(trip.took_us for trip in trips) / 1e6,
        "bound_s": median(trip.hops for trip in trips) * 1.5 * PERIOD_US / 1e6,
        "periods_a_hop": median(trip.took_us / trip.hops for trip in trips) / PERIOD_US,
    }


def simulate_trips() -> list[Trip]:
    journeys = HopCounts(START_US + POPULATION.first_us, POPULATION.every_us)
    scenario = Scenario("latency", ScenarioConfig("latency", DURATION_US, POPULATION, LinkDelays((1_000,))))
    world = build_world(scenario, SEED, on_event=journeys.take)
    for address in POPULATION.addresses():
        journeys.follow(world.machine(address), address)
    world.run(DURATION_US)
    return journeys.trips


async def on_sockets() -> list[Trip]:
    journeys = HopCounts(START_US + POPULATION.first_us, POPULATION.every_us)
    town = LoopbackNetwork(seed=SEED, around=journeys.follow, on_event=journeys.take)
    town.settle(POPULATION, DURATION_US)
    await town.run(DURATION_US)
    return journeys.trips


SEED = 1
PERIOD_US = 250_000
POPULATION = LoopbackPopulation(
    nodes=40,
    subscribers=0.3,
    notes=12,
    first_us=35_000_000,
    every_us=3_000_000,
    mesh=MeshConfig(
        "hardened",
        heartbeat_us=500_000,
        silent_periods=20,
        hardening=HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=16),
    ),
    link=LinkConfig("cells", 4),
    checks=("once",),
    port=4081,
)
DURATION_US = POPULATION.first_us + POPULATION.notes * POPULATION.every_us + 8_000_000

if __name__ == "__main__":
    main()

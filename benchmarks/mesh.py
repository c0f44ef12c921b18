"""What does a simulated mesh cost: frames a second of one with 500 nodes, and one advert's flood as n grows?

The mesh has 500 nodes of degree 4, a tenth of them subscribers, as in P0; link layer off.

The flood is the whole life of one advert: nodes that know their neighbours and nothing else, then one of them
advertises, until nobody has anything left to tell. The cost of heartbeats in that time is measured just before, and
subtracted. The cost must grow like n: adverts sent per node, and time per node. `--large` adds n = 50,000, which takes
four minutes of a core and 0.8 GB.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from typing import Any

from veilcast.authority.keyring import Keyring
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.graphs import is_connected, watts_strogatz
from veilcast.sim.host import Birth
from veilcast.sim.mesh.population import TOPIC, MeshPopulation, role_keyrings, topic_token
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", action="store_true", help="flood 50,000 nodes too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    sizes = (500, 5_000, 50_000) if options.large else (500, 5_000)
    results = {"frames a second, 500 nodes": frames(), "one advert": {f"{n:,}": flood(n) for n in sizes}}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    print(f"{'500 nodes simulated, frames a second':<44}{results['frames a second, 500 nodes']:>10,}")
    smallest = next(iter(results["one advert"].values()))
    for n, cost in results["one advert"].items():
        print(f"one advert's flood, n = {n}")
        for name, value in cost.items():
            print(f"  {name:<42}{value:>10,}{value / smallest[name]:>8.2f} x")


def frames() -> int:
    """Heartbeats, and a note every second, on a mesh that has formed."""
    mesh = MeshConfig(neighbours_max=20, address_bytes_max=8)
    people = MeshPopulation(500, 4, 0.2, 0.1, notes=10, mesh=mesh, checks=("everyone",))
    world = World(seed=1)
    people.populate(world, 0)
    world.run(20_000_000)
    before = world.counts.delivered
    spent = seconds(world, 11_000_000)
    world.finish()
    return round((world.counts.delivered - before) / spent)


def flood(n: int) -> dict[str, float]:
    world, names = World(seed=1), [Address(f"n{number}") for number in range(n)]
    settle(world, names)
    world.run(3_000_000)
    idle = seconds(world, IDLE_US) * FLOOD_US / IDLE_US
    world.call(names[0], lambda machine, now: machine.advertise(TOPIC, now))
    cost = seconds(world, FLOOD_US) - idle
    nodes = [world.machine(name) for name in names]
    assert all(len(node.overlay.reachable_origins(topic_token())) == 1 for node in nodes)
    told = sum(node.sent["Advert"] for node in nodes)
    world.run(2_000_000)
    assert told == sum(node.sent["Advert"] for node in nodes), "there is something left to tell"
    return {
        "adverts sent per node": round(told / n, 2),
        "seconds": round(cost, 3),
        "microseconds per node": round(1e6 * cost / n),
    }


def settle(world: World, names: Sequence[Address]) -> None:
    """A small world in which the first could publish, and nobody does or reads."""
    graph = watts_strogatz(len(names), 4, 0.2, derive_rng(world.seed, "graph"))
    assert is_connected(len(names), graph)
    known: list[list[Address]] = [[] for _ in names]
    for u, v in graph:
        known[u].append(names[v])
        known[v].append(names[u])
    for number, name in enumerate(names):
        world.add(name, MeshNodeOwner(role_keyrings()["forwarder" if number else "publisher"], known[number]).start)
    for u, v in graph:
        world.connect(names[u], names[v])


class MeshNodeOwner:
    def __init__(self, keyring: Keyring, neighbours: Sequence[Address]) -> None:
        self._keyring, self._neighbours = keyring, neighbours

    def start(self, birth: Birth) -> MeshNode:
        return MeshNode(CONFIG, self._keyring, birth.rng, birth.entropy, self._neighbours, birth.now)


def seconds(world: World, duration_us: int) -> float:
    gc.collect()
    start = time.process_time()
    world.run(duration_us)
    return time.process_time() - start


CONFIG = MeshConfig(neighbours_max=20, address_bytes_max=8, d_max=32)
IDLE_US, FLOOD_US = 5_000_000, 20_000_000

if __name__ == "__main__":
    main()

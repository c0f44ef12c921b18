"""How soon do survivors hear of news again, when four nodes of five are killed at once?

The hardened mesh among certified members who found one another. At one moment most fall silent, and nobody is told: it
is for the others to notice. The publisher survives, and goes on publishing twice a second. Counted are the heartbeats
until every reader that survives has got something that was published after the crash. The claim is ten, in 99 of 100
seeds.

Without links (`--links` has them, and takes ten times as long) a killed node is one that is stopped for ever: the
simulator tells peers of a crash as the end of a stream would, and datagrams have none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from multiprocessing import get_context
from typing import Any

from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import Config
from veilcast.sim.chance import generator
from veilcast.sim.mesh import MeshPopulation
from veilcast.sim.world import World

NODES, KILLED, CLAIM = 64, 0.8, 10
BEAT_US, EVERY_US = 1_000_000, 500_000
FIRST_US, CRASH_US, AFTER_US = 150 * BEAT_US, 165 * BEAT_US, 20 * BEAT_US
"""The root is elected and the mesh stands before the first note is published."""
MESH = Config(profile="hardened", membership="certified", neighbours_max=24, address_bytes_max=8, heartbeat_us=BEAT_US)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--links", action="store_true", help="nodes have secured links, with cells at four a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    start = time.perf_counter()
    tasks = [(seed, options.links) for seed in range(options.first, options.first + options.seeds)]
    with get_context("spawn").Pool(options.workers) as pool:
        outcomes = pool.starmap(beats_until_heard, tasks, chunksize=1)
    took = time.perf_counter() - start
    heard = sorted(beats for beats, _ in outcomes if beats is not None)
    results: dict[str, Any] = {
        "seeds": len(outcomes),
        "within ten heartbeats": sum(beats <= CLAIM for beats in heard) / len(outcomes),
        "median": statistics.median(heard) if heard else None,
        "worst": heard[-1] if len(heard) == len(outcomes) else None,
        "notes lost": sum(lost for _, lost in outcomes),
        "late seeds": [
            seed for (seed, _), (beats, _) in zip(tasks, outcomes, strict=True) if not (beats and beats <= CLAIM)
        ],
        "seconds": round(took),
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, value in results.items():
            print(f"{name:<26}{value!s:>14}")


def beats_until_heard(seed: int, links: bool, nodes: int = NODES) -> tuple[float | None, int]:
    """Heartbeats from the crash until all surviving readers have news; None if never. And notes some did not get."""
    return Network(seed, links, nodes).crash()


class Network:
    """One that stands, and in which notes arrive."""

    def __init__(self, seed: int, links: bool, nodes: int = NODES) -> None:
        self._links, self._seed = links, seed
        self._people = MeshPopulation(
            nodes,
            subscribers=0.3,
            notes=(CRASH_US - FIRST_US + AFTER_US) // EVERY_US,
            first_us=FIRST_US,
            every_us=EVERY_US,
            join_us=BEAT_US // 4,
            mesh=MESH,
            checks=("once", "order", "intact", "readers"),
            link=LinkConfig() if links else None,
        )
        self._read: dict[bytes, dict[Address, int]] = {}
        self._world = World(seed=seed, on_event=self._seen, epoch_us=3_600_000_000)
        self._people.settle(self._world, 0)
        self._world.run(CRASH_US)
        readers = self._people.roles(seed)[1]
        whole = sum(len(by) == len(readers) for by in self._read.values())
        assert whole >= 0.8 * (CRASH_US - FIRST_US) // EVERY_US, "the mesh did not stand before the crash"

    def crash(self, draw: int = 0) -> tuple[float | None, int]:
        """Kill most, in one of many ways, and see what becomes of the others."""
        world, read = self._world, self._read
        publisher, readers = self._people.roles(self._seed)
        others = [address for address in self._people.addresses() if address != publisher]
        killed = generator(self._seed, f"killed {draw}").sample(others, round(KILLED * self._people.nodes))
        survivors = [reader for reader in readers if reader not in killed] or [readers[0]]
        for address in killed:
            if address not in survivors:
                (world.crash if self._links else world.pause)(address)
        crash_us, first = world.now, (CRASH_US - FIRST_US) // EVERY_US
        world.run(AFTER_US)
        later = [b"note %d" % number for number in range(first, self._people.notes)]
        whole = [read[body] for body in later if all(reader in read.get(body, {}) for reader in survivors)]
        heard_us = min((max(by[reader] for reader in survivors) for by in whole), default=None)
        lost = sum(any(reader not in read.get(body, {}) for reader in survivors) for body in later[: -2 * CLAIM])
        return None if heard_us is None else (heard_us - crash_us) / BEAT_US, lost

    def _seen(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._read.setdefault(event.note.publication.body, {}).setdefault(address, now)


if __name__ == "__main__":
    main()

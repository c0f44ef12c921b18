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
BEAT_US = 1_000_000
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
    notes = (CRASH_US - FIRST_US + AFTER_US) // (BEAT_US // 2)
    people = MeshPopulation(
        nodes,
        subscribers=0.3,
        notes=notes,
        first_us=FIRST_US,
        every_us=BEAT_US // 2,
        join_us=BEAT_US // 4,
        mesh=MESH,
        checks=("once", "order", "intact", "readers"),
        link=LinkConfig() if links else None,
    )
    read: dict[bytes, dict[Address, int]] = {}

    def seen(address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            read.setdefault(event.note.publication.body, {}).setdefault(address, now)

    world = World(seed=seed, on_event=seen, epoch_us=3_600_000_000)
    people.settle(world, 0)
    world.run(CRASH_US)
    publisher, readers = people.roles(seed)
    before = sum(len(by) == len(readers) for by in read.values())
    assert before >= 0.8 * (CRASH_US - FIRST_US) // (BEAT_US // 2), "the mesh did not stand before the crash"
    others = [address for address in people.addresses() if address != publisher]
    killed = generator(seed, "killed").sample(others, round(KILLED * nodes))
    survivors = [reader for reader in readers if reader not in killed] or [readers[0]]
    for address in killed:
        if address not in survivors:
            (world.crash if links else world.pause)(address)
    crash_us = world.now
    world.run(AFTER_US)
    later = [b"note %d" % number for number in range((CRASH_US - FIRST_US) // (BEAT_US // 2), notes)]
    whole = [read[body] for body in later if all(reader in read.get(body, {}) for reader in survivors)]
    heard_us = min((max(by[reader] for reader in survivors) for by in whole), default=None)
    lost = sum(any(reader not in read.get(body, {}) for reader in survivors) for body in later[: -2 * CLAIM])
    return None if heard_us is None else (heard_us - crash_us) / BEAT_US, lost


if __name__ == "__main__":
    main()

"""How many frames a second does the simulator carry, beside SimPy, and does it hold at 100,000 nodes?

The workload: floods on a Watts-Strogatz graph (k = 4, p = 0.1) with a fixed latency for each edge, uniform
between 10 and 100 ms; a node forwards on first receipt to all but the sender. One frame is one delivery.
Floods follow one another, a second apart, so that each has the network to itself.

`veilcast` runs the whole contract on real bytes (receive, frames_to_send, next_event, next_timer), hashes its
trace and emits an event for each first receipt. The SimPy models pass integers and do none of that. They come
in the two usual styles: one Timeout with a callback for each message, the fastest SimPy there is; and a
process with a Store for each node and a process for each message under way, as its documentation models
networks.

Each kernel gets the same graphs, must deliver exactly the same number of frames, and takes turns with the
others; the best of several rounds counts, by process time, since the machine may be shared. SimPy's slow
style gets fewer floods, or fewer nodes, and only its rate is compared.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import simpy

from veilcast.machine import Address
from veilcast.sim.flood import ID_SIZE, Flood
from veilcast.sim.graphs import watts_strogatz
from veilcast.sim.links import Links
from veilcast.sim.world import World

Edges = list[tuple[int, int]]


class Run(NamedTuple):
    frames: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results = measure(arguments.rounds)
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        print()
    else:
        show(results)


def measure(rounds: int) -> dict[str, Any]:
    small, large = graph(SMALL), graph(LARGE)
    before = resident_bytes()
    per_node = world_bytes(large, before)
    rates: dict[str, float] = {}
    jobs: list[tuple[str, Callable[[], Run], int]] = [
        ("veilcast 500", lambda: veilcast(SMALL, small, FLOODS), frames_of(SMALL, small, FLOODS)),
        ("simpy store 500", lambda: simpy_store(SMALL, small, 20), frames_of(SMALL, small, 20)),
        ("simpy callback 500", lambda: simpy_callback(SMALL, small, FLOODS), frames_of(SMALL, small, FLOODS)),
        ("veilcast 100000", lambda: veilcast(LARGE, large, 1), frames_of(LARGE, large, 1)),
        ("simpy callback 100000", lambda: simpy_callback(LARGE, large, 1), frames_of(LARGE, large, 1)),
    ]
    for _ in range(rounds):
        for name, job, frames in jobs:
            gc.collect()
            run = job()
            assert run.frames == frames, f"{name} delivered {run.frames} frames, not {frames}"
            rates[name] = max(rates.get(name, 0), run.frames / run.seconds)
    # Once: it is slow, and nothing is decided by it.
    run = simpy_store(LARGE, large, 1)
    assert run.frames == frames_of(LARGE, large, 1)
    rates["simpy store 100000"] = run.frames / run.seconds
    return {
        "frames_per_second": {name: round(rate) for name, rate in rates.items()},
        "veilcast over simpy store, n=500": round(rates["veilcast 500"] / rates["simpy store 500"], 2),
        "veilcast over simpy callback, n=500": round(rates["veilcast 500"] / rates["simpy callback 500"], 2),
        "veilcast over simpy store, n=100000": round(
            rates["veilcast 100000"] / rates["simpy store 100000"], 2
        ),
        "veilcast n=100000 over n=500": round(rates["veilcast 100000"] / rates["veilcast 500"], 2),
        "bytes_per_node": per_node,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def show(results: dict[str, Any]) -> None:
    rates = results["frames_per_second"]
    print(f"{'frames a second':<18}{'n=500':>12}{'n=100,000':>12}")
    for kernel in ("veilcast", "simpy callback", "simpy store"):
        print(f"{kernel:<18}{rates[f'{kernel} 500']:>12,}{rates[f'{kernel} 100000']:>12,}")
    print()
    for name in list(results)[1:]:
        print(f"{name:<38}{results[name]:>10,}")


# --- the kernels
# ------------------------------------------------------------------------------------------------------


def build(n: int, edges: Edges) -> tuple[World, list[Address]]:
    world = World(seed=1, links=Links(latency_us=(10_000, 100_000)))
    addresses = [Address(f"n{i}") for i in range(n)]
    for address in addresses:
        world.add(address, lambda birth: Flood())
    for u, v in edges:
        world.connect(addresses[u], addresses[v])
    world.run(0)
    return world, addresses


def veilcast(n: int, edges: Edges, floods: int) -> Run:
    world, addresses = build(n, edges)
    for number in range(floods):
        plan_flood(world, addresses[number % n], number)
    start = time.process_time()
    world.run((floods + 10) * SECOND)
    seconds = time.process_time() - start
    assert world.notes == n * floods
    assert world.counts.in_flight == 0
    return Run(world.counts.delivered, seconds)


def plan_flood(world: World, publisher: Address, number: int) -> None:
    def publish(machine: Flood, now: int) -> None:
        machine.publish(number.to_bytes(ID_SIZE, "big"), b"sixteen bytes...")

    world.after(number * SECOND, lambda: world.call(publisher, publish))


def simpy_callback(n: int, edges: Edges, floods: int) -> Run:
    """One Timeout for each message, its delivery a callback; no process at all."""
    environment = simpy.Environment()
    peers = latencies(n, edges)
    seen: list[dict[int, None]] = [{} for _ in range(n)]
    delivered = 0

    def forward(node: int, source: int, message: int) -> None:
        seen[node][message] = None
        for peer, latency in peers[node]:
            if peer != source:
                event = environment.timeout(latency, (peer, node, message))
                event.callbacks.append(arrive)

    def arrive(event: simpy.Event) -> None:
        nonlocal delivered
        delivered += 1
        node, source, message = event.value
        if message not in seen[node]:
            forward(node, source, message)

    for number in range(floods):
        event = environment.timeout(number * SECOND, number)
        event.callbacks.append(lambda event: forward(event.value % n, -1, event.value))
    return timed(environment, lambda: delivered)


def simpy_store(n: int, edges: Edges, floods: int) -> Run:
    """A process that reads from a Store for each node, and a process for each message under way."""
    environment = simpy.Environment()
    peers = latencies(n, edges)
    stores = [simpy.Store(environment) for _ in range(n)]
    delivered = 0

    def carry(peer: int, node: int, message: int, latency: int) -> Any:
        yield environment.timeout(latency)
        yield stores[peer].put((node, message))

    def live(node: int) -> Any:
        nonlocal delivered
        seen: dict[int, None] = {}
        while True:
            source, message = yield stores[node].get()
            delivered += source != OWNER
            if message in seen:
                continue
            seen[message] = None
            for peer, latency in peers[node]:
                if peer != source:
                    environment.process(carry(peer, node, message, latency))

    def publish() -> Any:
        for number in range(floods):
            yield stores[number % n].put((OWNER, number))
            yield environment.timeout(SECOND)

    for node in range(n):
        environment.process(live(node))
    environment.process(publish())
    return timed(environment, lambda: delivered)


def timed(environment: simpy.Environment, delivered: Callable[[], int]) -> Run:
    gc.disable()  # As the world does for itself.
    start = time.process_time()
    environment.run()
    seconds = time.process_time() - start
    gc.enable()
    return Run(delivered(), seconds)


# --- the workload
# -----------------------------------------------------------------------------------------------------


def graph(n: int) -> Edges:
    return watts_strogatz(n, 4, 0.1, Random(1))


def latencies(n: int, edges: Edges) -> list[list[tuple[int, int]]]:
    rng = Random(2)
    peers: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for u, v in edges:
        latency = rng.randint(10_000, 100_000)
        peers[u].append((v, latency))
        peers[v].append((u, latency))
    return peers


def frames_of(n: int, edges: Edges, floods: int) -> int:
    """Every node but the publisher forwards to all its peers but one: two frames an edge, less one for each node."""
    return floods * (2 * len(edges) - (n - 1))


def world_bytes(edges: Edges, before: int) -> int:
    """What one node and its links keep in memory, by the growth of the process."""
    world, _ = build(LARGE, edges)
    grown = resident_bytes() - before
    del world
    return grown // LARGE


def resident_bytes() -> int:
    """The memory this process holds now; its peak so far where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


SECOND = 1_000_000
SMALL, LARGE = 500, 100_000
FLOODS = 200
OWNER = -1

if __name__ == "__main__":
    main()

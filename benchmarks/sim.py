"""How many frames a second does the simulator carry, beside SimPy, and does it hold at 100,000 nodes?

The workload: floods on a Watts-Strogatz graph (k = 4, p = 0.1) with a fixed latency for each edge, uniform
between 10 and 100 ms; a node forwards on first receipt to all but the sender. One frame is one delivery. On
500 nodes 200 floods follow one another, a second apart (300,200 frames); on 100,000 nodes there is one at a
time (300,001).

`veilcast` runs the whole contract on real bytes (receive, frames_to_send, next_event, next_timer), hashes its
trace and emits an event for each first receipt. The SimPy models pass integers and do none of that. They come
in the two usual styles: a Timeout with a callback for each message, the least that SimPy can do; and a
process with a Store for each node and a process for each message under way. Two more lines show what leaving
the plain path costs: a draw for each frame (jitter), and a row for each frame (a recorder that drops it).

The machine may be shared, so the kernels take turns, in short rounds, and the best round of each counts, by
process time. All must deliver exactly the frames that the graph calls for.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import simpy

from veilcast.machine import Address
from veilcast.observe import ObservationRow
from veilcast.sim.flood import ID_SIZE, FloodNode
from veilcast.sim.graphs import watts_strogatz
from veilcast.sim.links import LinkDelays
from veilcast.sim.recorder import RowSink
from veilcast.sim.world import World

Edges = list[tuple[int, int]]


class Kernel(Protocol):
    """A network that can be flooded again and again."""

    @property
    def delivered(self) -> int: ...

    def flood(self, floods: int) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    results = measure()
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def measure() -> dict[str, Any]:
    small, large = graph(SMALL), graph(LARGE)
    memory = weigh(large)
    rates = race(SMALL, small, rounds=25, floods={"veilcast": 8, "simpy callback": 8, "simpy store": 2})
    rates |= race(SMALL, small, rounds=10, floods={"veilcast jitter": 4, "veilcast recorded": 4})
    rates |= race(LARGE, large, rounds=1, floods={"veilcast": 1, "simpy callback": 1, "simpy store": 1})
    ratios = {
        f"{one} / {other}": round(rates[one] / rates[other], 2)
        for one, other in (
            ("veilcast 500", "simpy store 500"),
            ("veilcast 500", "simpy callback 500"),
            ("veilcast 100000", "simpy store 100000"),
            ("veilcast 100000", "simpy callback 100000"),
            ("veilcast 100000", "veilcast 500"),
        )
    }
    return {
        "frames per second": {name: round(rate) for name, rate in rates.items()},
        "ratios": ratios,
        "memory": memory,
        "targets": {f"{name} >= {target}": ratios[name] >= target for name, target in TARGETS.items()},
    }


def weigh(edges: Edges) -> dict[str, int]:
    """Memory of a large world, and its peak after one flood; before anything else has run in this process."""
    before = resident_bytes()
    world = Veilcast(LARGE, edges)
    per_node = (resident_bytes() - before) // LARGE
    world.flood(1)
    return {"bytes per node": per_node, "peak MiB": peak_bytes() >> 20}


def race(n: int, edges: Edges, rounds: int, floods: dict[str, int]) -> dict[str, float]:
    """The best rate of each kernel. Each is built once, and floods its network again in every round."""
    kernels = {name: KERNELS[name](n, edges) for name in floods}
    rates = dict.fromkeys(floods, 0.0)
    for _ in range(rounds):
        for name, kernel in kernels.items():
            before = kernel.delivered
            gc.collect()
            gc.disable()  # As the world does for itself; so all are measured alike.
            start = time.process_time()
            kernel.flood(floods[name])
            seconds = time.process_time() - start
            gc.enable()
            frames = kernel.delivered - before
            assert frames == frames_of(n, edges, floods[name]), f"{name} delivered {frames} frames"
            rates[name] = max(rates[name], frames / seconds)
    return {f"{name} {n}": rate for name, rate in rates.items()}


def show(results: dict[str, Any]) -> None:
    rates = results["frames per second"]
    print(f"{'frames a second':<18}{'n=500':>12}{'n=100,000':>12}")
    for name in KERNELS:
        large = f"{rates[f'{name} 100000']:,}" if f"{name} 100000" in rates else "-"
        print(f"{name:<18}{rates[f'{name} 500']:>12,}{large:>12}")
    for group in ("ratios", "memory"):
        print()
        for name, value in results[group].items():
            print(f"{name:<42}{value:>10,}")
    print()
    for name, target in TARGETS.items():
        held = results["targets"][f"{name} >= {target}"]
        print(f"target {target}: {'holds' if held else 'MISSED'} ({name})")


# --- the kernels
# ----------------------------------------------------------------------------------------------


class Veilcast:
    """The world, with flood machines."""

    def __init__(self, n: int, edges: Edges, jitter_us: int = 0, recorder: RowSink | None = None) -> None:
        jitter = (0, jitter_us) if jitter_us else (0,)
        self._world = World(seed=1, links=LinkDelays(latency_us=(10_000, 100_000), jitter_us=jitter), recorder=recorder)
        self._addresses = [Address(f"n{i}") for i in range(n)]
        self._flooded = 0
        for address in self._addresses:
            self._world.add(address, lambda birth: FloodNode())
        for number, (u, v) in enumerate(edges):
            self._world.connect(self._addresses[u], self._addresses[v])
            if number % 1_000 == 0:
                self._world.run(0)  # The machines hear of their peers now, so that no notices pile up.
        self._world.run(0)

    @property
    def delivered(self) -> int:
        return self._world.counts.delivered

    def flood(self, floods: int) -> None:
        for number in range(floods):
            self._world.after(number * SECOND, self._publish)
        self._world.run((floods + 10) * SECOND)
        assert self._world.deliveries == len(self._addresses) * self._flooded

    def _publish(self) -> None:
        message = self._flooded.to_bytes(ID_SIZE, "big")
        publisher = self._addresses[self._flooded % len(self._addresses)]
        self._flooded += 1
        self._world.call(publisher, lambda machine, now: machine.publish(message, b"sixteen bytes..."))


class Nowhere:
    """A recorder that keeps nothing: the rows are made, and that is all."""

    def append(self, row: ObservationRow) -> None:
        pass


class SimpyCallback:
    """One Timeout for each message, its delivery a callback; no process at all."""

    def __init__(self, n: int, edges: Edges) -> None:
        self.delivered = 0
        self._environment = simpy.Environment()
        self._peers = latencies(n, edges)
        self._seen: list[dict[int, None]] = [{} for _ in range(n)]
        self._flooded = 0

    def flood(self, floods: int) -> None:
        for number in range(floods):
            event = self._environment.timeout(number * SECOND, self._flooded)
            event.callbacks.append(lambda event: self._forward(event.value % len(self._peers), OWNER, event.value))
            self._flooded += 1
        self._environment.run()

    def _forward(self, node: int, source: int, message: int) -> None:
        self._seen[node][message] = None
        timeout, arrive = self._environment.timeout, self._arrive
        for peer, latency in self._peers[node]:
            if peer != source:
                timeout(latency, (peer, node, message)).callbacks.append(arrive)

    def _arrive(self, event: Any) -> None:
        self.delivered += 1
        node, source, message = event.value
        if message not in self._seen[node]:
            self._forward(node, source, message)


class SimpyStore:
    """A process that reads from a Store for each node, and a process for each message under way."""

    def __init__(self, n: int, edges: Edges) -> None:
        self.delivered = 0
        self._environment = simpy.Environment()
        self._peers = latencies(n, edges)
        self._stores = [simpy.Store(self._environment) for _ in range(n)]
        self._flooded = 0
        for node in range(n):
            self._environment.process(self._live(node))
        self._environment.run()

    def flood(self, floods: int) -> None:
        self._environment.process(self._publish(floods))
        self._environment.run()

    def _publish(self, floods: int) -> Any:
        for _ in range(floods):
            yield self._stores[self._flooded % len(self._stores)].put((OWNER, self._flooded))
            self._flooded += 1
            yield self._environment.timeout(SECOND)

    def _live(self, node: int) -> Any:
        store, process, seen = self._stores[node], self._environment.process, dict[int, None]()
        while True:
            source, message = yield store.get()
            self.delivered += source != OWNER
            if message in seen:
                continue
            seen[message] = None
            for peer, latency in self._peers[node]:
                if peer != source:
                    process(self._carry(peer, node, message, latency))

    def _carry(self, peer: int, node: int, message: int, latency: int) -> Any:
        yield self._environment.timeout(latency)
        yield self._stores[peer].put((node, message))


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
    """Every node sends to all its peers but the one it heard from first; the publisher has no such peer."""
    return floods * (2 * len(edges) - (n - 1))


def resident_bytes() -> int:
    """The memory this process holds now; its peak so far where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    """The system counts in KiB, but macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


SECOND = 1_000_000
SMALL, LARGE = 500, 100_000
OWNER = -1
KERNELS: dict[str, Callable[[int, Edges], Kernel]] = {
    "veilcast": Veilcast,
    "veilcast jitter": lambda n, edges: Veilcast(n, edges, jitter_us=10_000),
    "veilcast recorded": lambda n, edges: Veilcast(n, edges, recorder=Nowhere()),
    "simpy callback": SimpyCallback,
    "simpy store": SimpyStore,
}
TARGETS = {"veilcast 500 / simpy store 500": 5, "veilcast 100000 / veilcast 500": 0.2}
"""Our target."""

if __name__ == "__main__":
    main()

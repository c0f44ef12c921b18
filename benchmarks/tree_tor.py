"""The cost of Tor for a tree: subscriptions a second, and the time from `publish` to a reader, with it and without.

Both are the same nodes with the same files, on one event loop: a directory, a publisher, and members of which some
subscribe. Over Tor they are onion services in a private network on this machine, each of a Tor of its own; straight,
they call one another at loopback addresses. A subscription counts when its reader has heard from nearly all nodes of
its tree, so its cost is that of laying a tree and of probing it. Every note must reach every reader once.

    python benchmarks/tree_tor.py --nodes 8 --readers 3 --notes 20 [--json]

Needs `tor`. The private network takes half a minute to come up, and hides nothing: it shows what calls cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.live_tree import LiveTree, start_tors
from veilcast.cli.local.network import NetworkPlan
from veilcast.net import tor_testnet
from veilcast.net.tor import Tor


class TreeFigures(NamedTuple):
    subscriptions_s: float
    """Subscriptions a second, all subscribers at once."""
    stood_s: float
    """From a subscription to its standing: the median of all readers."""
    median_s: float
    slowest_s: float
    """From `publish` to a reader's program, with two disks in between."""
    processor_s: float
    """Processor time of this process, in total; Tor's processes have their own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--notes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as base:
        found["straight"] = measure(Path(base) / "straight", arguments)
        with private_tor(Path(base)) as network:
            found["over Tor"] = measure(Path(base) / "onions", arguments, network)
    if arguments.json:
        print(json.dumps({name: each._asdict() for name, each in found.items()}))
    else:
        show(found)


def measure(directory: Path, arguments: argparse.Namespace, network: Path | None = None) -> TreeFigures:
    directory.mkdir(mode=0o700)
    plan = NetworkPlan(nodes=arguments.nodes, mode="tree", subscribers=arguments.readers, tor=network is not None)

    async def run(tors: Sequence[Tor]) -> TreeFigures:
        house = LiveTree(directory, plan, tors)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await measure_tree(house, arguments.notes)
        finally:
            await house.end()

    if network is None:
        return asyncio.run(run([]))
    with start_tors(plan, directory / "tors", network) as tors:
        return asyncio.run(run(tors))


async def measure_tree(house: LiveTree, notes: int) -> TreeFigures:
    await house.start(*house.names())
    await until_listed(house)
    begun, used = time.perf_counter(), time.process_time()
    stood = await asyncio.gather(*(time_awaited(house.subscribe(reader)) for reader in house.subscribers))
    took = time.perf_counter() - begun
    arrived: dict[str, dict[str, float]] = {reader: {} for reader in house.subscribers}
    following = [asyncio.create_task(follow(house, reader, notes, into)) for reader, into in arrived.items()]
    sent: dict[str, float] = {}
    async with house.client(house.publisher) as me:
        for number in range(notes):
            sent[f"note {number}"] = time.perf_counter()
            await me.publish(house.net.topic, f"note {number}")
            await asyncio.sleep(EVERY_S)
    await asyncio.gather(*following)
    assert all(each.keys() == sent.keys() for each in arrived.values())
    delays = [at - sent[note] for each in arrived.values() for note, at in each.items()]
    return TreeFigures(len(stood) / took, median(stood), median(delays), max(delays), time.process_time() - used)


async def time_awaited(work: Any) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def follow(house: LiveTree, reader: str, notes: int, into: dict[str, float]) -> None:
    async with house.client(reader) as me:
        async for note in me.subscribe(house.net.topic, keep=True):
            body = note.publication.body.decode()
            assert body not in into, "a note came twice"
            into[body] = time.perf_counter()
            if len(into) == notes:
                return


async def until_listed(house: LiveTree) -> None:
    """Until every member knows of all others."""
    for name in house.names()[1:]:
        async with house.client(name) as me:
            while (await me.status()).members < house.net.plan.nodes:
                await asyncio.sleep(0.05)


@contextmanager
def private_tor(base: Path) -> Iterator[Path]:
    tor_testnet.start_network(base / "testnet")
    try:
        yield tor_testnet.network_file(base / "testnet")
    finally:
        tor_testnet.stop_network(base / "testnet")


def show(found: dict[str, TreeFigures]) -> None:
    rows = {
        "subscriptions a second": ("subscriptions_s", "8.3f"),
        "a subscription stands after, s": ("stood_s", "8.2f"),
        "publish to reader, median, s": ("median_s", "8.3f"),
        "publish to reader, slowest, s": ("slowest_s", "8.3f"),
        "processor of the nodes, s": ("processor_s", "8.2f"),
    }
    print(f"{'':32}{'straight':>10}{'over Tor':>10}{'ratio':>8}")
    for label, (field, form) in rows.items():
        straight, over = (getattr(each, field) for each in found.values())
        print(f"{label:32}{straight:{'10' + form[1:]}}{over:{'10' + form[1:]}}{over / straight:8.2f}")


EVERY_S = 0.5
WITHIN_S = 180.0

if __name__ == "__main__":
    main()

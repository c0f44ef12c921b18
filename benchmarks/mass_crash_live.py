"""How soon do the survivors of a live network hear of news again, when four nodes of five are killed at once?

64 nodes as people have them, with heartbeats of a second and links of four cells a second on real sockets, served by
five processes of every fifth node each. The readers subscribe; when what the publisher says now and then reaches all of
them, it publishes twice a second for a while; then all processes but the publisher's are killed with SIGKILL, and
nobody is told. Counted are the heartbeats until every reader that survives has got something that was published after
that. One run of about three minutes, most of it for the first election; `mass_crash.py` asks the same of many seeds in
the simulator. The claim is ten.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import veilcast
from veilcast.authority.epoch import HOUR_US
from veilcast.cli.context import Context
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, lay_out, node_file
from veilcast.cli.local.status import wait_until_linked
from veilcast.cli.local.workers import WorkerGroup, living_workers
from veilcast.net.client import Client, Subscription

CLAIM, WORKERS, READERS = 10, 5, 0.3
SLOWLY_S, EVERY_S = 5.0, 0.5
"""Between two notes, before there is a mesh and after: what waits for it would be in the way of what comes later."""
LINK_S, SETTLE_S, STEADY_S, AFTER_S = 180.0, 300.0, 15.0, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    plan = NetworkPlan(options.nodes, subscribers=round(READERS * options.nodes), rate=4, epoch_us=HOUR_US)
    with tempfile.TemporaryDirectory() as place:
        result = asyncio.run(crash(Path(place), plan, random.Random(options.seed)))
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['killed']} of {options.nodes} nodes killed; {result['readers']} readers survive")
    print(f"{result['again']} of them hear of news again, the last after {result['heartbeats']} heartbeats")
    print(f"claim: {CLAIM}; load of this machine {result['load']:.1f}")


async def crash(directory: Path, plan: NetworkPlan, rng: random.Random) -> dict[str, Any]:
    net = lay_out(directory, plan, Context(), rng)
    crew = WorkerGroup(directory, WORKERS, lifeline=True)
    try:
        await wait_until_linked(
            directory, net, crew, LINK_S, lambda linked: tell(f"{linked} of {plan.nodes} nodes have neighbours")
        )
        return await watch(directory, net)
    finally:
        crew.end()


async def watch(directory: Path, net: LocalNetwork) -> dict[str, Any]:
    readers, (publisher,) = net.nodes_with_role("subscriber"), net.nodes_with_role("publisher")
    heard: dict[int, float] = {}
    """When a reader first got something that was published after `since`."""
    since, every_s = 0.0, SLOWLY_S

    async def read(number: int, subscription: Subscription) -> None:
        async for note in subscription:
            if float(note.publication.body) > since:
                heard.setdefault(number, time.monotonic())

    async def publish(client: Client) -> None:
        while True:
            await client.publish(net.topic, str(time.monotonic()).encode())
            await asyncio.sleep(every_s)

    async with AsyncExitStack() as clients:
        tasks = []
        for number in readers:
            client = await clients.enter_async_context(veilcast.connect(node_file(directory, number)))
            await (subscription := client.subscribe(net.topic)).start()
            tasks.append(asyncio.create_task(read(number, subscription)))
        # Only now: who subscribes when a mesh has begun to form waits for the next epoch.
        client = await clients.enter_async_context(veilcast.connect(node_file(directory, publisher)))
        tasks.append(asyncio.create_task(publish(client)))
        try:
            if not await all_hear(heard, readers, SETTLE_S):
                raise SystemExit("the network did not settle")
            every_s = EVERY_S
            await asyncio.sleep(SLOWLY_S + STEADY_S)
            survivors = [number for number in readers if number % WORKERS == publisher % WORKERS]
            heard.clear()
            since = time.monotonic()
            for path, pid in living_workers(directory).items():
                if path.stem != f"worker-{publisher % WORKERS}":
                    os.kill(pid, signal.SIGKILL)
            await all_hear(heard, survivors, AFTER_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    took = [heard[number] - since for number in survivors if number in heard]
    return {
        "killed": sum(number % WORKERS != publisher % WORKERS for number in range(net.plan.nodes)),
        "readers": len(survivors),
        "again": len(took),
        "heartbeats": round(max(took) * 1e6 / net.plan.heartbeat_us, 1) if len(took) == len(survivors) else None,
        "each": sorted(round(each * 1e6 / net.plan.heartbeat_us, 1) for each in took),
        "load": os.getloadavg()[0],
    }


async def all_hear(heard: dict[int, float], readers: list[int], within_s: float) -> bool:
    """Wait until all these readers hear of news, or for so long; whether they do."""
    end, count = time.monotonic() + within_s, -1
    while count < len(readers) and time.monotonic() < end:
        if count != (count := sum(number in heard for number in readers)):
            tell(f"{count} of {len(readers)} readers hear of news")
        await asyncio.sleep(0.05)
    return count == len(readers)


def tell(state: str) -> None:
    """Shows the progress on one line of a terminal."""
    print(f"{state:<60}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

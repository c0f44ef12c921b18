"""How soon do the survivors of a live network hear of news again, when four nodes of five are killed at once?

Real processes, one for each node, on loopback: the publisher publishes twice a second, 80 % are killed with SIGKILL at
one moment, and nobody is told. Counted are the heartbeats until every reader that survives has got something that was
published after that. One run; `mass_crash.py` asks the same of many seeds in the simulator. The claim is ten.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import veilcast
from veilcast.cli.context import Context
from veilcast.cli.localnet import TOPIC, Plan, lay_out, node_file

CLAIM, KILLED, READERS, EVERY_S, SETTLE_S, AFTER_S = 10, 0.8, 16, 0.5, 180.0, 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = asyncio.run(crash(arguments.nodes, random.Random(arguments.seed)))
    if arguments.json:
        print(json.dumps(result))
    else:
        heard, within = result["readers again"], result["heartbeats"]
        print(f"{result['killed']} of {arguments.nodes} nodes killed; {result['readers']} readers survive")
        print(f"{heard} of them hear of news again, the last after {within} heartbeats (claim: {CLAIM})")
        print(f"load of this machine {os.getloadavg()[0]:.1f}")


async def crash(nodes: int, rng: random.Random) -> dict[str, float | int | None]:
    with tempfile.TemporaryDirectory() as place:
        directory, plan = Path(place), Plan(nodes, subscribers=READERS)
        net = lay_out(directory, plan, Context(), rng)
        processes = [start(node_file(directory, number)) for number in range(nodes)]
        try:
            return await asyncio.wait_for(watch(directory, net.roles, plan.heartbeat_us / 1e6, processes, rng), 400)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


async def watch(
    directory: Path,
    roles: tuple[str, ...],
    beat_s: float,
    processes: list[subprocess.Popen[bytes]],
    rng: random.Random,
) -> dict[str, float | int | None]:
    publisher = roles.index("publisher")
    readers = [number for number, role in enumerate(roles) if role == "subscriber"]
    heard: dict[int, float] = {}
    killed_at = [float("inf")]

    async def read(number: int) -> None:
        async with veilcast.connect(await ready(node_file(directory, number))) as me:
            async for note in me.subscribe(TOPIC):
                if float(note.publication.body) > killed_at[0]:
                    heard.setdefault(number, time.monotonic())

    async def publish() -> None:
        async with veilcast.connect(await ready(node_file(directory, publisher))) as me:
            while True:
                await me.publish(TOPIC, str(time.monotonic()).encode())
                await asyncio.sleep(EVERY_S)

    tasks = [asyncio.create_task(read(number)) for number in readers] + [asyncio.create_task(publish())]
    try:
        # Everybody has heard something: count what came since the beginning as if it came after a crash.
        killed_at[0] = 0.0
        await until(lambda: len(heard) == len(readers), SETTLE_S)
        await asyncio.sleep(2.0)
        others = [number for number in range(len(processes)) if number != publisher]
        dead = rng.sample(others, round(KILLED * len(processes)))
        survivors = [number for number in readers if number not in dead]
        heard.clear()
        killed_at[0] = time.monotonic()
        for number in dead:
            processes[number].kill()
        await until(lambda: all(number in heard for number in survivors), AFTER_S)
        again = [heard[number] - killed_at[0] for number in survivors if number in heard]
        return {
            "killed": len(dead),
            "readers": len(survivors),
            "readers again": len(again),
            "heartbeats": round(max(again) / beat_s, 1) if len(again) == len(survivors) and again else None,
        }
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def start(config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "veilcast.cli.main", "node", "run", "-c", str(config)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def ready(config: Path) -> Path:
    socket = config.parent / "state" / "control.sock"
    await until(socket.exists, SETTLE_S)
    return config


async def until(holds: Callable[[], bool], within_s: float) -> None:
    """Wait until it holds, or for so long."""
    end = time.monotonic() + within_s
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()

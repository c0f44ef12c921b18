"""A local network of any mode in separate processes, with a hostile publisher among its members."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from support.waits import HANG_S, pause, until
from veilcast.cli.local import network, workers
from veilcast.errors import VeilcastError
from veilcast.net.client import Client, open_client

HERE = Path(__file__).parent
PUBLISHERS, READERS, NOTES = 2, 2, 8
FAULT = re.compile(r"fault", re.IGNORECASE)


class PoisonOutcome(NamedTuple):
    arrived: dict[str, int]
    """Later notifications of the honest publisher that arrived, by subscriber."""
    alive: int
    """Worker processes that still run at the end."""
    faults: int
    """Log lines about faults, and faults that the nodes count."""


def run_poisoned_network(directory: Path, mode: str) -> PoisonOutcome:
    """Start a network; let one publisher send a poisoned publication, and another send honest ones after it."""
    source = str(Path(network.__file__).parents[2])
    paths = os.pathsep.join((str(HERE / "poisoned"), source))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "veilcast.cli.main", "net"]
    options = ["--mode", mode, "--publishers", str(PUBLISHERS), "--subscribers", str(READERS), "--epoch", "30"]
    options += ["--no-tor"] if mode == "tree" else []
    subprocess.run(
        [*command, "up", "6", *options, "--dir", str(directory)], env=environment, check=True, timeout=HANG_S
    )
    try:
        return asyncio.run(_observe(directory))
    finally:
        subprocess.run(
            [*command, "down", "--keep", "--dir", str(directory)], env=environment, check=True, timeout=HANG_S
        )


async def _observe(directory: Path) -> PoisonOutcome:
    net = network.read_network(directory)
    values: dict[str, Any] = {"price": 512} if net.plan.mode == "foil" else {}

    def file(number: int) -> Path:
        return network.node_file(directory, number)

    opened = [await open_client(file(number)) for number in net.nodes_with_role("publisher")]
    honest, hostile = opened
    heard: dict[str, Counter[str]] = {}
    tasks = []
    for number in net.nodes_with_role("subscriber"):
        heard[str(number)] = Counter()
        tasks.append(asyncio.create_task(_listen(file(number), net.topic, heard[str(number)])))
    try:
        async with asyncio.timeout(HANG_S):
            await _until_first(honest, net.topic, values, heard)
        await hostile.publish(net.topic, "POISON", **values)
        for number in range(NOTES):
            await honest.publish(net.topic, f"after {number}", **values)
        with contextlib.suppress(TimeoutError):  # The caller sees what is missing.
            await until(lambda: _all_there(heard))
        counted = [await _faults(file(number)) for number in range(net.plan.nodes)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in opened:
            await client.close()
    arrived = {reader: sum(body.startswith("after") for body in bodies) for reader, bodies in heard.items()}
    logs = "".join(path.read_text(errors="replace") for path in directory.rglob("*.log"))
    return PoisonOutcome(arrived, len(workers.living_workers(directory)), len(FAULT.findall(logs)) + sum(counted))


async def _faults(config: Path) -> int:
    """Faults that a node counts; a dead node counts none, and is missing among the running ones."""
    with contextlib.suppress(VeilcastError):
        me = await open_client(config)
        try:
            return (await me.status()).faults
        finally:
            await me.close()
    return 0


async def _listen(config: Path, topic: str, heard: Counter[str]) -> None:
    """Continue as long as anything answers: the test looks for dead nodes."""
    me = await open_client(config)
    try:
        async for note in me.subscribe(topic, keep=True):
            heard[note.publication.body.decode()] += 1
    finally:
        await me.close()


async def _until_first(me: Client, topic: str, values: Any, heard: dict[str, Counter[str]]) -> None:
    """Publish until every subscriber has something: members join at the start of epochs."""
    number = 0
    while not all(heard.values()):
        if not (await me.status()).outbox:
            await me.publish(topic, f"before {number}", **values)
            number += 1
        await pause()


def _all_there(heard: dict[str, Counter[str]]) -> bool:
    return all(sum(body.startswith("after") for body in bodies) == NOTES for bodies in heard.values())

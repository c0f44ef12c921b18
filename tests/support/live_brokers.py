"""A live overlay: members and brokers on one event loop, or any broker in a separate process, to be killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.live_network import LiveNetwork as AnyHouse
from support.waits import HANG_S, pause
from veilcast.cli import transports
from veilcast.cli.broker_facts import ask_brokers
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.local import brokers
from veilcast.cli.local.network import NetworkPlan, NodeRole
from veilcast.cli.local.overlay_plan import OverlayPlan, VirtualNodePlan
from veilcast.cli.main import main
from veilcast.net.service import ServiceSetup
from veilcast.net.stream_limits import StreamLimits


def make_plan(kinds: dict[str, tuple[str, ...]], *, spare: int = 0, replicas: int = 3, **more: Any) -> NetworkPlan:
    """Virtual nodes a - b - c, and d beside b, with Byzantine replicas of these kinds; the publisher is at a,
    subscribers are at c and d."""
    names = ("a", "b", "c", "d")
    nodes = tuple(VirtualNodePlan(name, replicas, kinds.get(name, ())) for name in names)
    roles: tuple[NodeRole, ...] = ("publisher", "subscriber", "subscriber")
    overlay = OverlayPlan(nodes, (("a", "b"), ("b", "c"), ("b", "d")), ("a", "c", "d"), spare)
    return NetworkPlan(nodes=3, mode="brokers", publishers=1, subscribers=2, overlay=overlay, roles=roles, **more)


class LiveBrokers(AnyHouse):
    def __init__(self, directory: Path, plan: NetworkPlan) -> None:
        super().__init__(directory, plan, _HASTY_MEMBER)
        for host in plan.hosts:
            with self.file(host).open("a") as file:
                file.write(_HASTY_BROKER)
        self._children: dict[str, BaseProcess] = {}

    @property
    def brokers(self) -> list[str]:
        """All brokers that run from the start."""
        plan = self.net.plan
        return [host for host in plan.hosts if host not in plan.spare_hosts]

    def byzantine(self) -> set[str]:
        return {host for host in self.brokers if self.net.plan.brokers.byzantine_kind(host) is not None}

    def file(self, name: str) -> Path:
        if name in self.net.plan.hosts:
            return brokers.broker_file(self.directory, name)
        return super().file(name)

    def service(self, name: str) -> AbstractContextManager[ServiceSetup[Any]]:
        if name in self.net.plan.hosts:
            return brokers.compose_host(self.directory, self.net.plan.brokers, name)
        return compose(*self.member(name))

    async def broker_facts(self) -> dict[str, Any]:
        """The facts that all brokers report, by name."""
        return await asyncio.to_thread(ask_brokers, self.directory)

    async def wait_until_routed(self) -> None:
        """Wait until all brokers know all subscriptions."""
        while not all(facts and facts["complete"] for facts in (await self.broker_facts()).values()):
            await pause()

    async def spawn(self, name: str) -> None:
        """Start an honest broker in a separate process; returns when it listens."""
        heard, said = _PROCESSES.Pipe(duplex=False)
        errors = self.file(name).with_suffix(".errors")
        child = self._children[name] = _PROCESSES.Process(target=run_broker, args=(self.file(name), said, errors))
        child.start()
        said.close()
        line = await asyncio.to_thread(heard.recv)
        assert line.startswith("listening at"), line
        heard.close()

    def kill(self, name: str) -> None:
        child = self._children.pop(name)
        child.kill()
        child.join()

    async def end(self) -> None:
        for name in list(self._children):
            self.kill(name)
        await super().end()


def run_broker(file: Path, said: Connection, errors: Path) -> None:
    """The command that runs a broker, in a process forked from one that has imported everything."""
    sys.stderr = errors.open("w", buffering=1)
    sys.exit(main(["brokers", "run", "-c", str(file)], Context(say=said.send)))


def run_with_brokers(
    directory: Path, plan: NetworkPlan, test: Callable[[LiveBrokers], Awaitable[None]], within_s: float = HANG_S
) -> None:
    """Lay out an overlay, and run a test in it. Peers reconnect sooner than in service."""

    async def run() -> None:
        house = LiveBrokers(directory, plan)
        try:
            async with asyncio.timeout(within_s):
                with patch.object(
                    transports,
                    "StreamLimits",
                    partial(StreamLimits, backoff_s=0.05, backoff_max_s=0.5, handshake_s=HANG_S),
                ):
                    await test(house)
        finally:
            await house.end()

    asyncio.run(run())


_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["veilcast.cli.commands"])
_HASTY_MEMBER = "again_us = 2000000\n"
_HASTY_BROKER = "[brokers]\nbound_us = 300000\n"
"""Short timeouts: distant machines need more time than this computer."""

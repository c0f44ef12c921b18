"""A live relay: server, proxy and members on one event loop, or any of the hosts in a separate process."""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from support.live_network import LiveNetwork as AnyHouse
from support.live_network import wait_for_status
from support.waits import HANG_S, pause
from veilcast.cli import transports
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.local.relay import HOSTS, compose_host
from veilcast.cli.main import main
from veilcast.net.service import ServiceSetup
from veilcast.net.stream_limits import StreamLimits
from veilcast.node.record_store import RecordStore


class LiveRelay(AnyHouse):
    def __init__(self, directory: Path, plan: NetworkPlan) -> None:
        super().__init__(directory, plan, _HASTY)
        self._children: dict[str, BaseProcess] = {}
        self._heard: dict[str, Connection] = {}

    def edit_file(self, name: str, old: str, new: str) -> None:
        """Change a word of one file."""
        text = self.file(name).read_text()
        assert old in text
        self.file(name).write_text(text.replace(old, new))

    def add_standby(self, name: str, database: str) -> None:
        """Give the server a database, and add another server with the same keys and database."""
        first = self.net.hosts[0]
        host, _, port = first.rpartition(":")
        address = f"{host}:{int(port) + 1}"
        shutil.copytree(self.file("server").parent, self.directory / name)
        (self.directory / name / "server.toml").rename(self.file(name))
        for server in ("server", name):
            text = self.file(server).read_text()
            self.file(server).write_text(f'database = "{database}"\n{text}')
        self.edit_file(name, first, address)
        self.edit_file("proxy", f'server = "{first}"', f'server = ["{first}", "{address}"]')

    def file(self, name: str) -> Path:
        return self.directory / name / f"{name}.toml" if name in _COMMANDS else super().file(name)

    async def spawn(
        self, name: str, *, forgetful: bool = False, room: int | None = None, may_stand_by: bool = False
    ) -> None:
        """Start one of the hosts in a separate process; returns when it listens, or stands by.

        `forgetful` plants a bug: its disk forgets. `room` limits the size of its files in bytes.
        """
        heard, said = _PROCESSES.Pipe(duplex=False)
        child = self._children[name] = _PROCESSES.Process(
            target=run_host,
            args=(_COMMANDS.get(name, name), self.file(name), said, forgetful, room, self.errors(name)),
        )
        child.start()
        said.close()
        line = await asyncio.to_thread(heard.recv)
        assert line.startswith("listening at") or (may_stand_by and "stands by" in line), line
        self._heard[name] = heard

    async def hear(self, name: str, words: str) -> None:
        """Return when a host in a separate process has said these words."""
        while words not in await asyncio.to_thread(self._heard[name].recv):
            pass

    def errors(self, name: str) -> Path:
        """The error output of a host in a separate process that has ended."""
        return self.file(name).with_suffix(".errors")

    def exit_code(self, name: str) -> int | None:
        """The exit code of a host that has ended by itself; None while it runs."""
        code = self._children[name].exitcode
        if code is not None:
            del self._children[name]
            self._heard.pop(name).close()
        return code

    def kill(self, name: str) -> None:
        child = self._children.pop(name)
        child.kill()
        child.join()
        self._heard.pop(name).close()

    async def publish_while(self, disturb: Callable[[], Awaitable[None]], kills: int) -> None:
        """Publish without a pause, disturb the relay `kills` times, each after a few publications, and compare what
        its subscribers have at the end."""
        rng, bodies = Random(7), list[str]()
        for reader in self.subscribers:
            await self.subscribe(reader)
        publishing = asyncio.create_task(self._publish_on(bodies))
        for _ in range(kills):
            goal = len(bodies) + rng.randrange(1, 12)
            while len(bodies) < goal and not publishing.done():
                await pause()
            await disturb()
        publishing.cancel()
        await asyncio.wait([publishing])
        async with self.client(self.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox)
        assert len(bodies) >= kills
        for reader in self.subscribers:
            assert await self.read(reader, len(bodies)) == sorted(bodies)
            async with self.client(reader) as me:
                assert (await me.status()).inbox == 0

    async def _publish_on(self, bodies: list[str]) -> None:
        """Publish one note after another, as fast as the publisher's disk stores them, with a bound on unconfirmed
        ones."""
        async with self.client(self.publisher) as me:
            while True:
                body = f"note {len(bodies)}"
                await me.publish(self.net.topic, body)
                bodies.append(body)
                await wait_for_status(me, lambda status: status.outbox < 8)

    async def end(self) -> None:
        for name in list(self._children):
            self.kill(name)
        await super().end()

    def service(self, name: str) -> AbstractContextManager[ServiceSetup[Any]]:
        for host in HOSTS:
            if name == host:
                return compose_host(self.directory, host)
        return compose(*self.member(name))


def run_host(name: str, file: Path, said: Connection, forgetful: bool, room: int | None, errors: Path) -> None:
    """The command that runs a host, in a process forked from one that has imported everything."""
    if forgetful:
        RecordStore.write = lambda *_: None  # type: ignore[method-assign]

    def say(line: str) -> None:
        """The host listens, and has loaded all that it needs."""
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        said.send(line)

    sys.stderr = errors.open("w", buffering=1)

    def warn(line: str) -> None:
        sys.stderr.write(f"veilcast: {line}\n")
        said.send(line)

    sys.exit(main(["relay", name, "run", "-c", str(file)], Context(say=say, warn=warn)))


def run_with_relay(directory: Path, plan: NetworkPlan, test: Callable[[LiveRelay], Awaitable[None]]) -> None:
    """Lay out a relay, and run a test in it. Clients reconnect sooner than in service."""

    async def run() -> None:
        house = LiveRelay(directory, plan)
        try:
            async with asyncio.timeout(HANG_S):
                with patch.object(
                    transports, "StreamLimits", partial(StreamLimits, backoff_max_s=0.5, handshake_s=HANG_S)
                ):
                    await test(house)
        finally:
            await house.end()

    asyncio.run(run())


_COMMANDS = {"standby": "server"}
"""The commands of hosts that are named otherwise."""
_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["veilcast.cli.commands"])
_HASTY = "spread_us = 10000\nretry_us = 500000\n"
"""Settings of the table `relay`, which comes last in a member's file: tests do not wait for delays that only hide a
member."""

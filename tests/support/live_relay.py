"""A live relay: server, proxy and members on one event loop, or any of the hosts in a separate process."""

from __future__ import annotations

import asyncio
import resource
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
from support.waits import HANG_S
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

    def edit_file(self, name: str, old: str, new: str) -> None:
        """Change a word of one file."""
        text = self.file(name).read_text()
        assert old in text
        self.file(name).write_text(text.replace(old, new))

    async def spawn(self, name: str, *, forgetful: bool = False, room: int | None = None) -> None:
        """Start one of the hosts in a separate process; returns when it listens.

        `forgetful` plants a bug: its disk forgets. `room` limits the size of its files in bytes.
        """
        heard, said = _PROCESSES.Pipe(duplex=False)
        child = self._children[name] = _PROCESSES.Process(
            target=run_host, args=(name, self.file(name), said, forgetful, room, self.errors(name))
        )
        child.start()
        said.close()
        line = await asyncio.to_thread(heard.recv)
        assert line.startswith("listening at"), line
        heard.close()

    def errors(self, name: str) -> Path:
        """The error output of a host in a separate process that has ended."""
        return self.file(name).with_suffix(".errors")

    def exit_code(self, name: str) -> int | None:
        """The exit code of a host that has ended by itself; None while it runs."""
        code = self._children[name].exitcode
        if code is not None:
            del self._children[name]
        return code

    def kill(self, name: str) -> None:
        child = self._children.pop(name)
        child.kill()
        child.join()

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
    sys.exit(main(["relay", name, "run", "-c", str(file)], Context(say=say)))


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


_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["veilcast.cli.commands"])
_HASTY = "spread_us = 10000\nretry_us = 500000\n"
"""Settings of the table `relay`, which comes last in a member's file: tests do not wait for delays that only hide a
member."""

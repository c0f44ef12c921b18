"""`veilcast invite` and `veilcast join` in one process: the inviter in a thread, the joiner in the test.

Both run as at a terminal without a person: passphrases are drawn, or come from files. What the inviter prints and
returns is kept.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.waits import HANG_S
from veilcast.cli import commands
from veilcast.cli.compose import compose
from veilcast.cli.context import Context, Report
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.net.service import serve_until
from veilcast.node.config import load_config


def make_context(**changes: Any) -> Context:
    """A computer without a terminal, where passphrases are cheap to guess."""
    fields: dict[str, Any] = {"has_terminal": lambda: False, "warn": lambda line: None, "say": lambda line: None}
    return Context(cost=PassphraseCost(1, 1), **{**fields, **changes})


def run_command(*words: str, context: Context | None = None) -> Report:
    """Run one command. What it refuses is raised."""
    arguments = commands.parse(list(words))
    report: Report = arguments.run(arguments, context or make_context())
    return report


class Invitation:
    """An `invite` that waits in a thread for a joiner, on loopback."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        topic: str = "news/eu",
        waits_at: str | None = "127.0.0.1:0",
        **changes: Any,
    ) -> None:
        """`waits_at` is None if the network's rendezvous is to be used."""
        self.warnings: list[str] = []
        self._said: queue.Queue[str | None] = queue.Queue()
        self._outcome: Report | BaseException | None = None
        where = ["--authority", str(directory), "--days", "1", "--json"]
        where += [] if waits_at is None else ["--listen", waits_at]
        words = ["invite", *([topic] if topic else []), *where, *options]
        context = make_context(say=self._said.put, warn=self.warnings.append, **changes)
        self._thread = threading.Thread(target=self._run, args=(words, context), daemon=True)
        self._thread.start()
        first = self._said.get(timeout=HANG_S)
        if first is None:
            self.report()
        assert first is not None
        self.told: dict[str, Any] = json.loads(first)
        self.code: str = self.told["code"]

    def report(self) -> Report:
        """What the command returned in the end; raises what it raised."""
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def _run(self, words: list[str], context: Context) -> None:
        try:
            self._outcome = run_command(*words, context=context)
        except BaseException as error:
            self._outcome = error
        finally:
            self._said.put(None)


@asynccontextmanager
async def running_member(home: Path) -> AsyncIterator[None]:
    """The node of a member that has joined."""
    secret = Secret((home / "member.keys.passphrase").read_bytes().strip())
    stop, ready = asyncio.Event(), asyncio.Event()
    with compose(load_config(home / "node.toml"), secret) as setup:
        serving = asyncio.create_task(serve_until(setup, stop, stop, lambda _: ready.set()))
        await ready.wait()
        yield
        stop.set()
        await serving

"""A node that runs on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.memory_node import MemoryNode, serve_control
from support.waits import HANG_S


class Elsewhere:
    """A desk on a loop of its own, in another thread, as a node is in another process."""

    def __init__(self, desk: MemoryNode, loop: asyncio.AbstractEventLoop) -> None:
        self.desk, self._loop = desk, loop

    def do(self, work: Callable[[], Any]) -> Any:
        """Await something there."""

        async def run() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(HANG_S)


@contextlib.contextmanager
def node(directory: Path) -> Iterator[Elsewhere]:
    ready, over, found = threading.Event(), asyncio.Event(), list[Elsewhere]()

    async def run() -> None:
        found.append(Elsewhere(MemoryNode(), asyncio.get_running_loop()))
        async with serve_control(directory, found[0].desk):
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(HANG_S)
    try:
        yield found[0]
    finally:
        found[0]._loop.call_soon_threadsafe(over.set)
        thread.join(HANG_S)
        assert not thread.is_alive()

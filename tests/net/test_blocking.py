from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import HANG_S
from veilcast import UnreachableError, connect_sync
from veilcast.net.blocking import Calls

sys.path.insert(0, str(Path(__file__).parent))
from desk import Desk, served


@contextlib.contextmanager
def node(directory: Path) -> Iterator[list[Desk]]:
    """A desk on a loop of its own, in another thread, as a node is in another process."""
    ready, desks = threading.Event(), list[Desk]()

    async def run() -> None:
        desks.append(Desk())
        loop.append(asyncio.get_running_loop())
        over.append(asyncio.Event())
        async with served(directory, desks[0]):
            ready.set()
            await over[0].wait()

    loop, over = list[asyncio.AbstractEventLoop](), list[asyncio.Event]()
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(HANG_S)
    try:
        yield desks
    finally:
        loop[0].call_soon_threadsafe(over[0].set)
        thread.join(HANG_S)
        assert not thread.is_alive()


def test_a_program_without_asyncio_publishes_and_reads(tmp_path: Path) -> None:
    with node(tmp_path) as (desk,), connect_sync(tmp_path / "node.toml") as me:
        notes = me.subscribe("weather")
        notes.start()
        for body in ("sunny", "rain"):
            me.publish("weather", body, temp=20)
        assert me.status().subscriptions == 1
        assert len(me.peers()) == 1
        bodies = []
        for note in notes:
            bodies.append(note.publication.body)
            if len(bodies) == 2:
                notes.acknowledge()
                break
        assert bodies == [b"sunny", b"rain"]
        assert len(desk.acknowledged) == 2
        notes.close()
        assert me.status().subscriptions == 0
        me.stop()


def test_without_a_node_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("")
    with pytest.raises(UnreachableError, match="veilcast node run -c"), connect_sync(tmp_path / "node.toml"):
        pass


def test_a_call_that_a_signal_cancelled_was_interrupted() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        Calls(runner).run(cancelled())

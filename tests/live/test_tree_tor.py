"""A tree in service over real Tor: a private network, a directory and eight nodes, each behind its own Tor.

All notes are delivered. After a Tor relay and a node were killed, delivery resumes. Neither the nodes' logs, nor the
taps of their records, nor the sockets of their process show an address that is not an onion service's.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live_tree import LiveTree, run_with_tree, start_tors
from support.tcp_connections import internal_connections, open_connections
from veilcast.cli.local.network import NetworkPlan
from veilcast.errors import LocalError
from veilcast.net.log import LogFormatter
from veilcast.net.tor_process import TorProcess
from veilcast.observe import CellRow, read_table

PLAN = NetworkPlan(nodes=8, mode="tree", publishers=1, subscribers=3, tap=True)
NOTES = [f"note {number}" for number in range(10)]
RESUMED = 5
"""Number of successive notes that must reach every subscriber to show that delivery continues."""
PATIENCE_S = 5.0
"""Time that the next note waits for one to reach every subscriber, in seconds."""


@pytest.mark.all_only
def test_all_is_delivered_also_after_a_relay_and_a_node_were_killed_and_no_address_shows(
    tor_network: Path, tmp_path: Path, disk: Path
) -> None:
    begun, done = time.monotonic(), list[tuple[str, int]]()

    async def test(house: LiveTree) -> None:
        await house.start(*house.names())
        await house.wait_until_acquainted()
        done.append(("acquainted", round(time.monotonic() - begun)))
        await asyncio.gather(*map(house.subscribe, house.subscribers))
        done.append(("subscribed", round(time.monotonic() - begun)))
        await house.publish(*NOTES)
        for reader in house.subscribers:
            assert await house.read(reader, len(NOTES)) == NOTES
        assert open_connections()
        assert internal_connections() == []

        done.append(("delivered", round(time.monotonic() - begun)))
        crash_a_relay(tor_network.parent)
        await house.cancel(house.others[0])
        await resumed(house, done)
        assert internal_connections() == []
        for name in house.names()[1:]:
            assert peers_in(house.tap(name)) - OURS == set(), name

    with start_tors(PLAN, tmp_path, tor_network) as tors, logged() as text:
        try:
            run_with_tree(disk, PLAN, test, tors=tors)
        except TimeoutError:
            pytest.fail(f"it took too long: {done}")
    assert "started" in text.getvalue()
    assert re.findall(r"\d+\.\d+\.\d+\.\d+|onion", text.getvalue()) == []


def crash_a_relay(home: Path) -> None:
    """Kill a relay, and start it again, as its operator's machine does.

    All circuits through the relay are lost, with the introduction points and descriptors that it had for services. If
    it stayed away, every Tor would go on choosing it for an eighth of all hops: authorities here assume that it is up.
    """
    relay = TorProcess(home / "r1")
    with relay.control() as control, contextlib.suppress(LocalError):
        os.kill(int(control.value("process/pid")), signal.SIGKILL)
        while True:
            control.drop_events()
    relay.start_again()
    relay.detach()


async def resumed(house: LiveTree, done: list[tuple[str, int]]) -> None:
    """Publish note after note until several in a row have reached every subscriber."""
    begun, sent = time.monotonic(), 0
    got: dict[str, set[str]] = {reader: set() for reader in house.subscribers}
    came = asyncio.Event()
    following = [asyncio.create_task(follow(house, reader, into, came)) for reader, into in got.items()]
    try:
        async with house.client(house.publisher) as me:
            while True:
                sent += 1
                await me.publish(house.net.topic, f"after {sent}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        while not all(f"after {sent}" in each for each in got.values()):
                            came.clear()
                            await came.wait()
                reached = sum(f"after {sent}" in each for each in got.values())
                done.append((f"readers of note {sent}: {reached}", round(time.monotonic() - begun)))
                last = {f"after {number}" for number in range(sent - RESUMED + 1, sent + 1)}
                if sent >= RESUMED and all(last <= each for each in got.values()):
                    return
    finally:
        for task in following:
            task.cancel()
        await asyncio.wait(following)


async def follow(house: LiveTree, reader: str, into: set[str], came: asyncio.Event) -> None:
    async with house.client(reader) as me:
        subscription = me.subscribe(house.net.topic, keep=True)
        async for note in subscription:
            into.add(note.publication.body.decode())
            came.set()


def peers_in(tap: Path) -> set[str]:
    """The names of both ends of all records of a tap, without the parts that identify a stream or an onion service."""
    ends = {end for cell in read_table(tap, CellRow) for end in (cell.src, cell.dst)}
    return {
        re.sub(r"[a-z2-7]{56}\.onion:80$", "ONION", re.sub(r"^(in:)\d+|-[0-9a-f]+(?=@)", r"\1", end)) for end in ends
    }


OURS = {
    "ONION",
    "in:",
    *(f"{purpose}@ONION" for purpose in ("directory", "fetch", "hop", "publish", "install", "probe")),
}


@contextlib.contextmanager
def logged() -> Iterator[io.StringIO]:
    """All that nodes log meanwhile, as they would write it to a file."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    handler.setFormatter(LogFormatter("pretty"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)

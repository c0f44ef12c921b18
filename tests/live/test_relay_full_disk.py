"""Server and proxy on disks that really fill up: they end, report it in one line, and keep what they acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_network import wait_for_status
from support.live_relay import LiveRelay, run_with_relay
from support.waits import pause
from veilcast.cli import exits
from veilcast.cli.local.network import NetworkPlan
from veilcast.errors import StorageError

PLAN = NetworkPlan(nodes=3, mode="relay", publishers=1, subscribers=1)
ROOM = 60_000
"""Limit of a file's size in bytes: enough to start, and for a few writes."""


@pytest.mark.all_only
def test_a_server_whose_disk_is_full_ends_and_has_all_that_it_acknowledged(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start("proxy", house.publisher, reader)
        await house.spawn("server", room=ROOM)
        await house.subscribe(reader)
        await house.stop(reader)
        bodies = list[str]()
        async with house.client(house.publisher) as me:
            while (code := house.exit_code("server")) is None:
                if (await me.status()).outbox < 2:
                    bodies.append(f"note {len(bodies)}")
                    await me.publish(house.net.topic, bodies[-1])
        assert_told(house, "server", code)
        assert len(bodies) > 2
        await house.spawn("server")
        await house.start(reader)
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox)
        assert await house.read(reader, len(bodies)) == sorted(bodies)

    run_with_relay(disk, PLAN, test)


@pytest.mark.all_only
def test_a_proxy_whose_disk_is_full_ends_and_knows_whom_it_has_let_in(disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start("server", house.publisher, reader)
        await house.spawn("proxy", room=ROOM)
        await house.subscribe(reader)
        await house.publish("before")
        code = house.exit_code("proxy")
        while code is None:  # Each life of the reader's enrols anew, and that is written down.
            await house.stop(reader)
            await house.start(reader)
            async with house.client(reader) as me:
                while (code := house.exit_code("proxy")) is None:
                    if not (await me.status()).waiting:
                        break
                    await pause()
        assert_told(house, "proxy", code)
        await house.spawn("proxy")
        await house.publish("after")
        assert await house.read(reader, 2) == ["after", "before"]

    run_with_relay(disk, PLAN, test)


def assert_told(house: LiveRelay, name: str, code: int | None) -> None:
    said = house.errors(name).read_text().splitlines()
    assert code == exits.code_of(StorageError(""))[0]
    assert said[-1] == "veilcast: the node's state in ledger.sqlite cannot be used: disk I/O error"
    assert not [line for line in said if "Traceback" in line]
    assert len([line for line in said if line.startswith("veilcast: ")]) == 1

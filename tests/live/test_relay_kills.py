"""Server and proxy are really killed at random moments: no confirmed publication is lost, and no subscriber gets one
twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from support.live_network import wait_for_status
from support.live_relay import LiveRelay, run_with_relay
from support.waits import pause
from veilcast.cli.local.network import NetworkPlan

PLAN = NetworkPlan(nodes=3, mode="relay", publishers=1, subscribers=2)
KILLS = 8


@pytest.mark.all_only
@pytest.mark.parametrize("victim", ["server", "proxy"])
def test_killed_at_any_moment_a_host_loses_nothing_that_it_promised(victim: str, disk: Path) -> None:
    other = "proxy" if victim == "server" else "server"
    rng = Random(7)

    async def test(house: LiveRelay) -> None:
        await house.start(other, house.publisher, *house.subscribers)
        await house.spawn(victim)
        for reader in house.subscribers:
            await house.subscribe(reader)
        bodies = list[str]()
        publishing = asyncio.create_task(publish(house, bodies))
        for _ in range(KILLS):
            goal = len(bodies) + rng.randrange(1, 12)
            while len(bodies) < goal and not publishing.done():
                await pause()
            house.kill(victim)
            await house.spawn(victim)
        publishing.cancel()
        await asyncio.wait([publishing])
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox)
        assert len(bodies) >= KILLS
        for reader in house.subscribers:
            assert await house.read(reader, len(bodies)) == sorted(bodies)
            async with house.client(reader) as me:
                assert (await me.status()).inbox == 0

    run_with_relay(disk, PLAN, test)


@pytest.mark.all_only
@pytest.mark.parametrize("forgetful", [False, True])
def test_a_disk_that_forgets_would_be_noticed(forgetful: bool, disk: Path) -> None:
    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start("proxy", house.publisher, reader)
        await house.spawn("server", forgetful=forgetful)
        await house.subscribe(reader)
        await house.stop(reader)
        await house.publish("first")
        house.kill("server")
        await house.spawn("server", forgetful=forgetful)
        await house.start(reader)
        await house.subscribe(reader)
        await house.publish("second")
        expected = ["second"] if forgetful else ["first", "second"]
        assert await house.read(reader, len(expected)) == expected

    run_with_relay(disk, PLAN, test)


async def publish(house: LiveRelay, bodies: list[str]) -> None:
    """Publish one note after another, as fast as the publisher's disk stores them, with a bound on unconfirmed ones."""
    async with house.client(house.publisher) as me:
        while True:
            body = f"note {len(bodies)}"
            await me.publish(house.net.topic, body)
            bodies.append(body)
            await wait_for_status(me, lambda status: status.outbox < 8)

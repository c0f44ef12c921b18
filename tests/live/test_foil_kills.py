"""A broker that is killed repeatedly, and loses acknowledged messages: no real publication is lost, and none comes
twice.

mosquitto writes its state to the disk every other second here. So each kill loses acknowledged messages, and sometimes
sessions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from support.live_foil import LiveFoil, has_mosquitto, run_with_foil
from support.live_network import wait_for_status
from support.waits import pause
from veilcast.authority.topic_record import Profile
from veilcast.cli.local.network import NetworkPlan
from veilcast.net.client import Client

PLAN = NetworkPlan(nodes=3, mode="foil", subscribers=2, epoch_us=3_600_000_000)
KILLS = 5

pytestmark = [pytest.mark.all_only, pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed")]


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_broker_killed_at_any_moment_loses_nothing_true_and_brings_nothing_twice(
    profile: Profile, disk: Path
) -> None:
    rng = Random(7)

    async def test(house: LiveFoil) -> None:
        bodies = await begin(house)
        publishing = Publishing(house, bodies)
        for _ in range(KILLS):
            goal = len(bodies) + rng.randrange(1, 15)
            while len(bodies) < goal and not publishing.task.done():
                await pause()
            house.broker.kill()
            house.broker.start()
        await publishing.end()
        await check(house, bodies)

    run_with_foil(disk, NetworkPlan(nodes=3, mode="foil", profile=profile, subscribers=2, epoch_us=3_600_000_000), test)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_reader_that_is_away_while_the_broker_forgets_everything_misses_nothing(keeps: bool, disk: Path) -> None:
    """The test would notice a publisher that keeps nothing."""

    async def test(house: LiveFoil) -> None:
        bodies = await begin(house)
        reader = house.subscribers[0]
        await house.stop(reader)
        async with house.client(house.publisher) as me:
            for number in range(10):
                bodies.append(await say(me, house, number))
            await wait_for_status(me, lambda status: not status.outbox)
        house.broker.kill()
        for file in (house.directory / "broker").glob("mosquitto.db*"):
            file.unlink()
        house.broker.start()
        await house.start(reader)
        await house.subscribe(reader)
        async with house.client(house.publisher) as me:
            bodies.append(await say(me, house, 10))
        assert await house.read(house.subscribers[1], 11) == sorted(bodies)
        if keeps:
            assert await house.read(reader, 11) == sorted(bodies)
        else:
            assert len(await read_up_to(house, reader, bodies[10])) < 11

    run_with_foil(disk, PLAN, test, more="" if keeps else "keep_us = 0\nmargin_us = 1\n")


@pytest.mark.heavy
def test_a_broker_killed_after_every_hundred_events_loses_nothing_true_and_brings_nothing_twice(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        bodies = await begin(house)
        publishing = Publishing(house, bodies)
        for _ in range(12):
            goal = len(bodies) + 100
            while len(bodies) < goal and not publishing.task.done():
                await pause()
            house.broker.kill()
            house.broker.start()
        await publishing.end()
        await check(house, bodies)

    run_with_foil(disk, PLAN, test)


async def read_up_to(house: LiveFoil, reader: str, last: str) -> list[str]:
    """All notes up to this one. A publisher repeats notes that no broker had confirmed when it was killed."""
    bodies = list[str]()
    async with house.client(reader) as me:
        subscription = me.subscribe(house.net.topic, keep=True)
        while last not in bodies:
            bodies.append((await anext(subscription)).publication.body.decode())
    return bodies


async def begin(house: LiveFoil) -> list[str]:
    await house.start(*house.names())
    for reader in house.subscribers:
        await house.subscribe(reader)
    return []


class Publishing:
    """Publishes one event after another, as fast as they leave, until it is told to end."""

    def __init__(self, house: LiveFoil, bodies: list[str]) -> None:
        self._house, self._bodies, self._over = house, bodies, False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._house.client(self._house.publisher) as me:
            while not self._over:
                self._bodies.append(await say(me, self._house, len(self._bodies)))
                await wait_for_status(me, lambda status: status.outbox < 8)
            await wait_for_status(me, lambda status: not status.outbox)

    async def end(self) -> None:
        self._over = True
        await self.task


async def say(me: Client, house: LiveFoil, number: int) -> str:
    body = f"note {number}"
    await me.publish(house.net.topic, body, price=500.0 + number % 50)
    return body


async def check(house: LiveFoil, bodies: list[str]) -> None:
    for reader in house.subscribers:
        assert await house.read(reader, len(bodies)) == sorted(bodies)
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0

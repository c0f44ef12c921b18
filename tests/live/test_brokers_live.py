"""An overlay of four virtual nodes with three replicas each, on loopback, with TLS and disks: whatever one replica of
each node does, every note reaches every subscriber once, and no honest replica is suspected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.live_brokers import LiveBrokers, make_plan, run_with_brokers
from support.live_network import wait_for_status
from support.waits import pause
from veilcast.cli.broker_facts import collect_marks

LIARS = {
    "drop, corrupt shares and blocks, replay": ("drop", "share", "block", "replay"),
    "equivocate, misroute, accuse, mute": ("equivocate", "misroute", "accuse", "mute"),
    "mute, delay, stall, doze": ("mute", "delay", "stall", "doze"),
}
first, *others = LIARS
NOTES = 20


@pytest.mark.parametrize("kinds", [first, *(pytest.param(other, marks=pytest.mark.all_only) for other in others)])
def test_with_a_liar_at_every_node_every_note_arrives_once(kinds: str, disk: Path) -> None:
    each: dict[str, tuple[str, ...]] = {node: (kind,) for node, kind in zip("abcd", LIARS[kinds], strict=True)}

    async def test(house: LiveBrokers) -> None:
        await house.start(*house.brokers, house.publisher, *house.subscribers)
        for reader in house.subscribers:
            await house.subscribe(reader)
        bodies = [f"note {number}" for number in range(NOTES)]
        await house.publish(*bodies)
        await check(house, bodies)

    run_with_brokers(disk, make_plan(each), test)


async def check(house: LiveBrokers, bodies: list[str]) -> None:
    for reader in house.subscribers:
        assert await house.read(reader, len(bodies)) == sorted(bodies)
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0
    told = await house.broker_facts()
    lie = {f"replica {host.rpartition('-')[2]} of {host.rpartition('-')[0]} (scheme 1)" for host in house.byzantine()}
    assert set(collect_marks(told, proof=True)) <= lie


def test_a_member_is_told_when_too_few_replicas_of_its_edge_node_answer(disk: Path) -> None:
    async def test(house: LiveBrokers) -> None:
        reader = house.subscribers[0]
        await house.start("c-1", reader)
        async with house.client(reader) as me:
            told = await wait_for_status(me, lambda status: status.neighbours == 1)
            assert told.hindrances == ("1 of the 3 replicas of the edge node answer, and 2 are needed",)
            await house.start("c-3")
            await wait_for_status(me, lambda status: not status.hindrances)

    run_with_brokers(disk, make_plan({}), test)


@pytest.mark.all_only
def test_brokers_killed_at_any_moment_lose_nothing_that_was_promised(disk: Path) -> None:
    """One broker at a time, at every node: a killed broker comes back empty, and fetches the routing state from the
    others."""

    async def test(house: LiveBrokers) -> None:
        victims = ["a-1", "b-2", "c-3", "d-1"]
        await house.start(*(host for host in house.brokers if host not in victims), house.publisher, *house.subscribers)
        for victim in victims:
            await house.spawn(victim)
        for reader in house.subscribers:
            await house.subscribe(reader)
        bodies, enough = list[str](), asyncio.Event()
        publishing = asyncio.create_task(publish(house, bodies, enough))
        for victim in victims * 2:
            await reached(bodies, len(bodies) + 10, publishing)
            house.kill(victim)
            await reached(bodies, len(bodies) + 10, publishing)
            await house.spawn(victim)
            await house.wait_until_routed()
        enough.set()
        await publishing
        await check(house, bodies)

    run_with_brokers(disk, make_plan({}), test)


async def publish(house: LiveBrokers, bodies: list[str], enough: asyncio.Event) -> None:
    """Publish one note after another, with a bound on those in flight; returns when all are confirmed."""
    async with house.client(house.publisher) as me:
        while not enough.is_set():
            body = f"note {len(bodies)}"
            await me.publish(house.net.topic, body)
            bodies.append(body)
            await wait_for_status(me, lambda status: status.outbox < 32)
        await wait_for_status(me, lambda status: not status.outbox)


async def reached(bodies: list[str], goal: int, publishing: asyncio.Task[Any]) -> None:
    while len(bodies) < goal and not publishing.done():
        await pause()

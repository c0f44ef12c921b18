"""An overlay under constant change: a Byzantine replica at every node, honest brokers killed, replicas attached and
detached, and publications all the while. All notes reach every subscriber, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest

from support.live_brokers import LiveBrokers, make_plan, run_with_brokers
from support.live_network import wait_for_status
from support.waits import HANG_S, pause
from veilcast.brokers.operations.redeployment_plan import RedeployStep
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica
from veilcast.cli.local.overlay_operator import LocalOperator

LIARS = (
    ("drop", "share", "block", "replay"),
    ("equivocate", "misroute", "accuse", "mute"),
    ("mute", "stall", "delay", "doze"),
)
VICTIMS = ("a-1", "b-1", "c-1", "d-2")
"""Honest brokers that do not leave."""


@pytest.mark.all_only
def test_replicas_come_and_go_while_notes_flow_and_none_is_lost(disk: Path) -> None:
    async def test(house: LiveBrokers) -> None:
        await begin(house, ())
        await carry(house, 120, [grow, shrink])

    run_with_brokers(disk, make_plan(at_nodes(LIARS[0]), spare=2), test)


@pytest.mark.heavy
@pytest.mark.all_only
@pytest.mark.parametrize("kinds", LIARS, ids=", ".join)
def test_ten_thousand_publications_past_liars_kills_and_a_redeployment_arrive_once(
    kinds: tuple[str, ...], disk: Path
) -> None:
    async def test(house: LiveBrokers) -> None:
        await begin(house, VICTIMS)
        rng = Random(10)

        async def kill(house: LiveBrokers) -> None:
            victim = rng.choice(VICTIMS)
            house.kill(victim)
            for _ in range(rng.randrange(50, 300)):  # It is away for a while; nothing depends on how long.
                await pause()
            await house.spawn(victim)

        await carry(house, 10_000, [kill, kill, grow, kill, kill, shrink, kill, kill])

    run_with_brokers(disk, make_plan(at_nodes(kinds), spare=2), test, within_s=10 * HANG_S)


def at_nodes(kinds: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {node: (kind,) for node, kind in zip("abcd", kinds, strict=True)}


async def begin(house: LiveBrokers, spawned: tuple[str, ...]) -> None:
    """Start all brokers and members, those named in separate processes."""
    for number in range(3):
        with house.file(f"{number + 1:02}").open("a") as file:
            file.write("refresh_messages = 128\n")
    for host in spawned:
        await house.spawn(host)
    await house.start(*(host for host in house.brokers if host not in spawned), house.publisher, *house.subscribers)
    for reader in house.subscribers:
        await house.subscribe(reader)


async def carry(house: LiveBrokers, count: int, events: list[object]) -> None:
    """Publish notes with these events spread over them; then all notes must have arrived once."""
    reading = [asyncio.create_task(read(house, reader, count)) for reader in house.subscribers]
    async with house.client(house.publisher) as me:
        due = {count * (at + 1) // (len(events) + 1): event for at, event in enumerate(events)}
        happening = list[asyncio.Task[None]]()
        for number in range(count):
            if number in due:
                await asyncio.gather(*happening)
                happening = [asyncio.create_task(due[number](house))]  # type: ignore[operator]
            await me.publish(house.net.topic, f"note {number}")
            if number % 16 == 0:
                await wait_for_status(me, lambda status: status.outbox < 128)  # Of 256 that may be.
        await asyncio.gather(*happening)
        await wait_for_status(me, lambda status: not status.outbox)
    expected = sorted(f"note {number}" for number in range(count))
    for task, reader in zip(reading, house.subscribers, strict=True):
        assert await task == expected
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0


async def read(house: LiveBrokers, reader: str, count: int) -> list[str]:
    """Read notes as they arrive, and acknowledge each."""
    bodies = list[str]()
    async with house.client(reader) as me:
        subscription = me.subscribe(house.net.topic, keep=True)
        while len(bodies) < count:
            bodies.append((await anext(subscription)).publication.body.decode())
        await subscription.acknowledge()
    return sorted(bodies)


async def grow(house: LiveBrokers) -> None:
    """Two spare brokers join b."""
    operator = LocalOperator(house.directory, house.net)
    overlay = operator.overlay()
    spares = operator.spares(overlay)[:2]
    node = overlay.node("b")
    await redeploy(house, operator, changed(overlay, node, (*node.replicas, *spares)), spares, [])


async def shrink(house: LiveBrokers) -> None:
    """The Byzantine replica of b leaves, and the honest one before it."""
    operator = LocalOperator(house.directory, house.net)
    overlay = operator.overlay()
    node = overlay.node("b")
    gone = [node.replicas[1], node.replicas[2]]
    left = tuple(replica for replica in node.replicas if replica not in gone)
    await redeploy(house, operator, changed(overlay, node, left), [], gone)


def changed(overlay: BrokerOverlay, node: NodeEntry, replicas: tuple[Replica, ...]) -> BrokerOverlay:
    entry = NodeEntry(node.name, node.version + 1, replicas)
    nodes = tuple(entry if each.name == node.name else each for each in overlay.nodes)
    return msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=nodes)


async def redeploy(
    house: LiveBrokers, operator: LocalOperator, overlay: BrokerOverlay, come: list[Replica], leave: list[Replica]
) -> None:
    step = RedeployStep(overlay, "b", tuple(come), tuple(leave))
    await house.start(*operator.sign(step))
    await asyncio.to_thread(operator.hand_out_overlay)
    while await asyncio.to_thread(operator.count_ready, step) < sum(len(node.replicas) for node in overlay.nodes) - 4:
        await pause()
    while await asyncio.to_thread(operator.count_staying, step):
        await pause()

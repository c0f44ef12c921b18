"""Two overlays of two operators on loopback, and members of both: after one overlay is gone, all notes still arrive,
once."""

from __future__ import annotations

import os
from pathlib import Path

from support.live_brokers import LiveBrokers, run_with_brokers
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, sign_overlay
from veilcast.cli.local.network import NetworkPlan, NodeRole
from veilcast.cli.local.overlay_operator import LocalOperator
from veilcast.cli.local.overlay_plan import OverlayPlan, VirtualNodePlan
from veilcast.crypto.sign import SigningKey
from veilcast.node.broker_overlay import encode_operator_line, load_broker, write_signed

SPARES = ("spare-1", "spare-2", "spare-3")
FIRST, LATER, LAST = ([f"{when} {number}" for number in range(5)] for when in ("first", "later", "last"))


def test_members_of_two_overlays_do_with_either(disk: Path) -> None:
    async def test(house: LiveBrokers) -> None:
        reader = house.subscribers[0]
        found_second_overlay(house)
        await house.start(*house.brokers, *SPARES, house.publisher, reader)
        await house.subscribe(reader)
        await house.publish(*FIRST)
        assert await house.read(reader, len(FIRST)) == FIRST
        for host in house.brokers:
            await house.stop(host)
        await publish(house, LATER)
        assert await house.read(reader, len(LATER)) == LATER
        async with house.client(reader) as me:
            told = await me.status()
        assert told.hindrances == ("on path 1 of 2, 0 of the 3 replicas of the edge node answer, and 2 are needed",)
        await house.start(*house.brokers)
        await house.wait_until_routed()
        for host in SPARES:
            await house.stop(host)
        await publish(house, LAST)
        assert await house.read(reader, len(LAST)) == LAST
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0

    overlay = OverlayPlan((VirtualNodePlan("a"),), (), ("a", "a"), spare=3)
    roles: tuple[NodeRole, ...] = ("publisher", "subscriber")
    plan = NetworkPlan(nodes=2, mode="brokers", publishers=1, subscribers=1, overlay=overlay, roles=roles)
    run_with_brokers(disk, plan, test)


async def publish(house: LiveBrokers, bodies: list[str]) -> None:
    """One path is gone: notes that are not confirmed there stay in the outbox for a while."""
    async with house.client(house.publisher) as me:
        for body in bodies:
            await me.publish(house.net.topic, body)


def found_second_overlay(house: LiveBrokers) -> None:
    """The spare brokers form an overlay of another operator, and all members join both."""
    operator = LocalOperator(house.directory, house.net)
    spares = tuple(operator.spares(operator.overlay()))
    key = SigningKey.generate(os.urandom)
    signed = sign_overlay(BrokerOverlay(1, (NodeEntry("z", 1, spares),), ()), key)
    line = encode_operator_line(key.public)
    for host in SPARES:
        known = load_broker(house.file(host)).operator
        house.file(host).write_text(house.file(host).read_text().replace(known, line))
        write_signed(house.directory / host / "overlay.signed", signed)
    for member in (house.publisher, house.subscribers[0]):
        write_signed(house.directory / member / "second.signed", signed)
        with house.file(member).open("a") as file:
            file.write(f'[[brokers.also]]\noverlay = "second.signed"\noperator = "{line}"\nedge = "z"\n')

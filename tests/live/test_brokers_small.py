"""Small overlays on loopback, with TLS and disks: the paper's profile delivers, a member finds its way back to an edge
node all of whose replicas were replaced, and a broker reports what it lacks."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.live_brokers import LiveBrokers, run_with_brokers
from support.waits import pause
from veilcast.authority.topic_record import Profile
from veilcast.brokers.operations.redeployment_plan import RedeployStep
from veilcast.brokers.overlay import NodeEntry
from veilcast.cli.local.brokers import broker_socket
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.local.overlay_operator import LocalOperator
from veilcast.cli.local.overlay_plan import OverlayPlan, VirtualNodePlan
from veilcast.errors import LocalError
from veilcast.net.host_queries import ask_host
from veilcast.node.broker_overlay import MAGIC

BODIES = [f"note {number}" for number in range(5)]


def small(overlay: OverlayPlan, profile: Profile = "hardened") -> NetworkPlan:
    return NetworkPlan(
        nodes=2,
        mode="brokers",
        profile=profile,
        publishers=1,
        subscribers=1,
        overlay=overlay,
        roles=("publisher", "subscriber"),
    )


def test_an_overlay_of_the_papers_profile_delivers_every_note_once(disk: Path) -> None:
    async def test(house: LiveBrokers) -> None:
        reader = house.subscribers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        await house.publish(*BODIES)
        assert await house.read(reader, len(BODIES)) == BODIES
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0

    nodes = (VirtualNodePlan("a"), VirtualNodePlan("b"))
    run_with_brokers(disk, small(OverlayPlan(nodes, (("a", "b"),), ("a", "b")), "paper"), test)


def test_a_member_that_comes_back_finds_an_edge_node_of_which_no_replica_is_what_it_was(disk: Path) -> None:
    """The subscriber is away while the last replicas that its first overlay named leave."""

    async def test(house: LiveBrokers) -> None:
        reader = house.subscribers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        await replace_all(house)
        kept = house.directory / reader / "overlay.signed"
        while kept.read_bytes() != (house.directory / "operator" / "overlay.signed").read_bytes():
            await pause()
        await house.stop(reader)
        async with house.client(house.publisher) as me:
            for body in BODIES:
                await me.publish(house.net.topic, body)
        await house.start(reader)
        assert await house.read(reader, len(BODIES)) == BODIES

    run_with_brokers(disk, small(OverlayPlan((VirtualNodePlan("a"),), (), ("a", "a"), spare=3)), test)


def test_a_broker_says_whom_of_its_node_it_misses_and_takes_no_older_overlay(disk: Path) -> None:
    """Of two linked brokers one calls the other: a broker also misses those that should have called it."""

    async def test(house: LiveBrokers) -> None:
        await house.start("a-1")
        peers = (await house.broker_facts())["a-1"]["peers"]
        assert list(peers.values()) == [False, False]
        operator = LocalOperator(house.directory, house.net)
        old = base64.b64encode(signed_at(house)).decode()
        overlay = operator.overlay()
        operator.sign(RedeployStep(msgspec.structs.replace(overlay, version=overlay.version + 1), "a", (), ()))
        await asyncio.to_thread(operator.hand_out_overlay)
        with pytest.raises(LocalError, match=r"version 1 is not taken: .* brokers go by version 2: sign the next one"):
            await asyncio.to_thread(ask_host, broker_socket(house.directory, "a-1"), {"order": old})
        assert (await house.broker_facts())["a-1"]["version"] == 2

    run_with_brokers(disk, small(OverlayPlan((VirtualNodePlan("a"),), (), ("a", "a"))), test)


def test_an_order_reaches_the_repository_by_way_of_members_and_it_tells_nobody(disk: Path) -> None:
    """One replica of the repository is replaced, and keys go to its successor."""

    async def test(house: LiveBrokers) -> None:
        reader = house.subscribers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        operator = LocalOperator(house.directory, house.net)
        overlay, (spare,) = operator.overlay(), operator.spares(operator.overlay())
        assert overlay.repository is not None
        shelves = (*overlay.repository.replicas[:2], spare)
        repository = msgspec.structs.replace(overlay.repository, version=2, replicas=shelves)
        newer = msgspec.structs.replace(overlay, version=overlay.version + 1, repository=repository)
        await house.start(*operator.sign(RedeployStep(newer, "repository", (spare,), overlay.repository.replicas[2:])))
        order = {"order": base64.b64encode(signed_at(house)).decode()}

        async def hand(host: str) -> dict[str, Any]:
            return await asyncio.to_thread(ask_host, broker_socket(house.directory, host), order)

        assert await hand("a-1") == {"version": 2, "tells": True}
        while (await house.broker_facts())["repository-1"]["version"] < 2:
            await pause()
        assert await hand("repository-1") == {"version": 2, "tells": False}
        await house.publish(*BODIES)
        assert await house.read(reader, len(BODIES)) == BODIES
        assert (await house.broker_facts())["spare-1"]["sizes"]["keys"] > 0

    overlay = OverlayPlan((VirtualNodePlan("a"),), (), ("a", "a"), spare=1, repository=3)
    run_with_brokers(disk, small(overlay), test)


def signed_at(house: LiveBrokers) -> bytes:
    """The overlay that the operator signed last, without the text before it."""
    return (house.directory / "operator" / "overlay.signed").read_bytes().removeprefix(MAGIC)


async def replace_all(house: LiveBrokers) -> None:
    operator = LocalOperator(house.directory, house.net)
    overlay = operator.overlay()
    spares, (node,) = operator.spares(overlay), overlay.nodes
    entry = NodeEntry(node.name, node.version + 1, tuple(spares))
    newer = msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=(entry,))
    step = RedeployStep(newer, node.name, tuple(spares), node.replicas)
    await house.start(*operator.sign(step))
    await asyncio.to_thread(operator.hand_out_overlay)
    while await asyncio.to_thread(operator.count_ready, step) < 3:
        await pause()
    while await asyncio.to_thread(operator.count_staying, step):
        await pause()

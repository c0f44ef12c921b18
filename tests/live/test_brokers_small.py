"""Small overlays on loopback, with TLS and disks: the paper's profile delivers, a member finds its way back to an edge
node all of whose replicas were replaced, and a broker says what it lacks."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.broker_house import House, in_house
from support.patience import pause
from veilcast.authority.record import Profile
from veilcast.brokers.overlay import NodeEntry
from veilcast.brokers.planning import Step
from veilcast.cli.localbrokers import NodePlan, OverlayPlan, broker_socket
from veilcast.cli.localnet import Plan
from veilcast.cli.localoperator import LocalOperator
from veilcast.errors import LocalError
from veilcast.net.inquiries import inquire
from veilcast.node.broker_files import MAGIC

BODIES = [f"note {number}" for number in range(5)]


def small(overlay: OverlayPlan, profile: Profile = "hardened") -> Plan:
    return Plan(
        nodes=2,
        mode="brokers",
        profile=profile,
        publishers=1,
        subscribers=1,
        overlay=overlay,
        roles=("publisher", "subscriber"),
    )


def test_an_overlay_of_the_papers_profile_delivers_every_note_once(disk: Path) -> None:
    async def test(house: House) -> None:
        reader = house.readers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        await house.publish(*BODIES)
        assert await house.read(reader, len(BODIES)) == BODIES
        async with house.client(reader) as me:
            assert (await me.status()).inbox == 0

    nodes = (NodePlan("a"), NodePlan("b"))
    in_house(disk, small(OverlayPlan(nodes, (("a", "b"),), ("a", "b")), "paper"), test)


def test_a_member_that_comes_back_finds_an_edge_node_of_which_no_replica_is_what_it_was(disk: Path) -> None:
    """The reader is away while the last of those whom its first overlay named are gone."""

    async def test(house: House) -> None:
        reader = house.readers[0]
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

    in_house(disk, small(OverlayPlan((NodePlan("a"),), (), ("a", "a"), spare=3)), test)


def test_a_broker_says_whom_of_its_node_it_misses_and_takes_no_older_overlay(disk: Path) -> None:
    """Of two that are linked one calls the other: it misses those who should have called, too."""

    async def test(house: House) -> None:
        await house.start("a-1")
        peers = (await house.told())["a-1"]["peers"]
        assert list(peers.values()) == [False, False]
        operator = LocalOperator(house.directory, house.net)
        old = base64.b64encode(signed_at(house)).decode()
        overlay = operator.overlay()
        operator.sign(Step(msgspec.structs.replace(overlay, version=overlay.version + 1), "a", (), ()))
        await asyncio.to_thread(operator.hand_out)
        with pytest.raises(LocalError, match=r"version 1 is not taken: .* brokers go by version 2: sign the next one"):
            await asyncio.to_thread(inquire, broker_socket(house.directory, "a-1"), {"order": old})
        assert (await house.told())["a-1"]["version"] == 2

    in_house(disk, small(OverlayPlan((NodePlan("a"),), (), ("a", "a"))), test)


def test_an_order_reaches_the_repository_by_way_of_members_and_it_tells_nobody(disk: Path) -> None:
    """One of its replicas is replaced, and keys go to the one that came."""

    async def test(house: House) -> None:
        reader = house.readers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        operator = LocalOperator(house.directory, house.net)
        overlay, (spare,) = operator.overlay(), operator.spares(operator.overlay())
        assert overlay.repository is not None
        shelves = (*overlay.repository.replicas[:2], spare)
        repository = msgspec.structs.replace(overlay.repository, version=2, replicas=shelves)
        newer = msgspec.structs.replace(overlay, version=overlay.version + 1, repository=repository)
        await house.start(*operator.sign(Step(newer, "repository", (spare,), overlay.repository.replicas[2:])))
        order = {"order": base64.b64encode(signed_at(house)).decode()}

        async def hand(host: str) -> dict[str, Any]:
            return await asyncio.to_thread(inquire, broker_socket(house.directory, host), order)

        assert await hand("a-1") == {"version": 2, "tells": True}
        while (await house.told())["repository-1"]["version"] < 2:
            await pause()
        assert await hand("repository-1") == {"version": 2, "tells": False}
        await house.publish(*BODIES)
        assert await house.read(reader, len(BODIES)) == BODIES
        assert (await house.told())["spare-1"]["sizes"]["keys"] > 0

    overlay = OverlayPlan((NodePlan("a"),), (), ("a", "a"), spare=1, repository=3)
    in_house(disk, small(overlay), test)


def signed_at(house: House) -> bytes:
    """What the operator has signed last, without the words before it."""
    return (house.directory / "operator" / "overlay.signed").read_bytes().removeprefix(MAGIC)


async def replace_all(house: House) -> None:
    operator = LocalOperator(house.directory, house.net)
    overlay = operator.overlay()
    spares, (node,) = operator.spares(overlay), overlay.nodes
    entry = NodeEntry(node.name, node.version + 1, tuple(spares))
    newer = msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=(entry,))
    step = Step(newer, node.name, tuple(spares), node.replicas)
    await house.start(*operator.sign(step))
    await asyncio.to_thread(operator.hand_out)
    while await asyncio.to_thread(operator.standing, step) < 3:
        await pause()
    while await asyncio.to_thread(operator.staying, step):
        await pause()

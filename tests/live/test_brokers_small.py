"""Small overlays on loopback, with TLS and disks: the paper's profile delivers, and a member finds its way back to an
edge node all of whose replicas were replaced."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from veilcast.authority.record import Profile
from veilcast.brokers.overlay import NodeEntry
from veilcast.brokers.planning import Step
from veilcast.cli.localbrokers import NodePlan, OverlayPlan
from veilcast.cli.localnet import Plan
from veilcast.cli.localoperator import LocalOperator

sys.path.insert(0, str(Path(__file__).parent))
from broker_house import House, in_house

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
    in_house(disk, small(OverlayPlan(nodes, (("a", "b"),), ("a", "b")), "paper"), test, within_s=30)


def test_a_member_that_comes_back_finds_an_edge_node_of_which_no_replica_is_what_it_was(disk: Path) -> None:
    """The reader is away while the last of those whom its first overlay named are gone."""

    async def test(house: House) -> None:
        reader = house.readers[0]
        await house.start(*house.brokers, house.publisher, reader)
        await house.subscribe(reader)
        await replace_all(house)
        kept = house.directory / reader / "overlay.signed"
        while kept.read_bytes() != (house.directory / "operator" / "overlay.signed").read_bytes():
            await asyncio.sleep(0.1)
        await house.stop(reader)
        async with house.client(house.publisher) as me:
            for body in BODIES:
                await me.publish(house.net.topic, body)
        await house.start(reader)
        assert await house.read(reader, len(BODIES)) == BODIES

    in_house(disk, small(OverlayPlan((NodePlan("a"),), (), ("a", "a"), spare=3)), test, within_s=60)


async def replace_all(house: House) -> None:
    operator = LocalOperator(house.directory, house.net)
    overlay = operator.overlay()
    spares, (node,) = operator.spares(overlay), overlay.nodes
    entry = NodeEntry(node.name, node.version + 1, tuple(spares))
    newer = msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=(entry,))
    step = Step(newer, node.name, tuple(spares), node.replicas)
    await house.start(*operator.sign(step))
    await asyncio.to_thread(operator.hand_out)
    while not await asyncio.to_thread(operator.stands, step, 3):
        await asyncio.sleep(0.1)
    while not await asyncio.to_thread(operator.left, step):
        await asyncio.sleep(0.1)

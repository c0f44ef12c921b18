"""A tree in service on loopback, without Tor: publications arrive, and a refused node is told why."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from support.live_network import wait_for_status
from support.live_tree import LiveTree, run_with_tree
from support.tcp_connections import internal_connections
from veilcast import LocalError, Range
from veilcast.cli.local.network import NetworkPlan

PLAN = NetworkPlan(nodes=5, mode="tree", publishers=1, subscribers=2, tor=False)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_every_reader_gets_what_is_published_once(profile: Literal["hardened", "paper"], disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        await house.start(*house.names())
        await house.wait_until_acquainted()
        for reader in house.subscribers:
            await house.subscribe(reader)
        await house.publish("one", "two", "three")
        for reader in house.subscribers:
            assert await house.read(reader, 3) == ["one", "three", "two"]
            async with house.client(reader) as me:
                assert (await me.status()).inbox == 0

    run_with_tree(disk, NetworkPlan(nodes=5, mode="tree", profile=profile, subscribers=2, tor=False), test)


def test_a_publication_waits_on_the_disk_until_there_is_a_directory(disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        reader, publisher = house.subscribers[0], house.publisher
        await house.start(publisher)
        async with house.client(publisher) as me:
            await me.publish(house.net.topic, "early")
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.outbox == 1
            assert told.hindrances[0].startswith(f"no way to the directory at {house.net.hosts[0]}: ")
        await house.start("directory", reader, *house.others)
        async with house.client(publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox and not status.hindrances)

    run_with_tree(disk, PLAN, test)


def test_a_tree_goes_on_without_one_of_its_three_directories(disk: Path) -> None:
    """Nodes that start after it has gone find all others, by listings that the other two signed."""

    async def test(house: LiveTree) -> None:
        reader, first, *late = house.subscribers[0], *house.net.plan.hosts
        await house.start(first, *late, house.publisher, *house.others)
        await house.stop(first)
        await house.start(*house.subscribers)
        await house.wait_until_acquainted()
        async with house.client(reader) as me:
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.hindrances == (f"no way to the directory at {house.net.hosts[0]}: it does not answer",)
        await house.subscribe(reader)
        await house.publish("by two of three")
        assert await house.read(reader, 1) == ["by two of three"]

    plan = NetworkPlan(nodes=5, mode="tree", publishers=1, subscribers=2, tor=False, directories=3)
    run_with_tree(disk, plan, test)


def test_who_starts_again_has_its_subscriptions(disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        reader = house.subscribers[0]
        await house.start(*house.names())
        await house.subscribe(reader)
        await house.stop(reader)
        await house.start(reader)
        async with house.client(reader) as me:
            await wait_for_status(me, lambda status: status.subscriptions == 1 and not status.waiting)
        await house.publish("again")
        assert await house.read(reader, 1) == ["again"]

    run_with_tree(disk, PLAN, test)


def test_a_subscription_that_no_tree_could_serve_is_refused_at_once(disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        reader = house.subscribers[0]
        await house.start("directory", reader)
        async with house.client(reader) as me:
            with pytest.raises(LocalError, match="temp"):
                await me.subscribe(Range("temp", 20, 25)).start()

    run_with_tree(disk, PLAN, test)


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="connections are looked up as Linux has them")
def test_without_tor_nodes_call_one_another_straight_and_that_is_seen(disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        await house.start(*house.names())
        await house.subscribe(house.subscribers[0])
        assert internal_connections()

    run_with_tree(disk, PLAN, test)

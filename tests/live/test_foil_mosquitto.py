"""Foiling at an unmodified broker: every real publication arrives once, and the broker's own matching forwards no more
than was subscribed to."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_foil import LiveFoil, has_mosquitto, run_with_foil
from support.live_network import wait_for_status
from support.waits import pause
from veilcast.authority.topic_record import Profile
from veilcast.cli.local.network import NetworkPlan
from veilcast.topics import All, Label, Range

HOUR_US = 3_600_000_000
FAKES = 9
"""Fakes of an event, by default."""
PRICES = [500.0 + step for step in range(20)]

pytestmark = [pytest.mark.all_only, pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed")]


async def all_fakes(house: LiveFoil, reader: str, each: int) -> None:
    """Wait until `each` fakes came with every event. A new subscriber asks for what it may have missed. Notes sent
    before its publisher answers come twice, with their fakes."""
    counts = house.machines[reader].counts
    while counts().get("fake", 0) != each * (len(PRICES) + counts().get("double", 0)):
        await pause()


@pytest.mark.parametrize(("profile", "version"), [("hardened", 5), ("hardened", 4), ("paper", 5)])
def test_every_reader_gets_every_event_once(profile: Profile, version: int, disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        await house.start(*house.names())
        for reader in house.subscribers:
            await house.subscribe(reader)
        await house.publish_prices(*PRICES)
        for reader in house.subscribers:
            assert await house.read(reader, len(PRICES)) == sorted(f"{price:g}" for price in PRICES)
            async with house.client(reader) as me:
                assert (await me.status()).inbox == 0
            await all_fakes(house, reader, FAKES)

    run_with_foil(
        disk,
        NetworkPlan(nodes=3, mode="foil", profile=profile, subscribers=2, epoch_us=HOUR_US),
        test,
        more=f"version = {version}\n",
    )


def test_the_brokers_own_matching_brings_a_range_and_little_else(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        near, far = house.subscribers
        await house.start(*house.names())
        for reader, low, high in ((near, 500.0, 509.0), (far, 100.0, 400.0)):
            async with house.client(reader) as me:
                wanted = All(Label(house.net.topic), Range("price", low, high))
                await me.subscribe(wanted, keep=True).start()
                await wait_for_status(me, lambda status: not status.waiting)
        await house.publish_prices(*PRICES)
        async with house.client(near) as me:
            wanted = All(Label(house.net.topic), Range("price", 500.0, 509.0))
            subscription = me.subscribe(wanted, keep=True)
            notes = [await anext(subscription) for _ in range(10)]
            await subscription.acknowledge()
            assert {note.publication.body.decode() for note in notes} == {f"{price:g}" for price in PRICES[:10]}
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox)
        assert house.machines[far].counts() == {}, "nothing came that lies elsewhere, not even a fake"
        came = house.machines[near].counts()
        times = 1 + came.get("double", 0) / len(notes)
        assert came.get("fake", 0) < FAKES * len(PRICES) * times

    run_with_foil(disk, NetworkPlan(nodes=3, mode="foil", subscribers=2, epoch_us=HOUR_US), test)


def test_fake_subscriptions_bring_fakes_and_nothing_that_is_delivered(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        await house.start(*house.names())
        (reader,) = house.subscribers
        async with house.client(reader) as me:
            wanted = All(Label(house.net.topic), Range("price", 490.0, 530.0))
            subscription = me.subscribe(wanted)
            await subscription.start()
            await wait_for_status(me, lambda status: not status.waiting)
            await house.publish_prices(*PRICES)
            notes = [await anext(subscription) for _ in PRICES]
            await subscription.acknowledge()
            assert sorted(note.publication.body.decode() for note in notes) == sorted(f"{each:g}" for each in PRICES)
            filters = house.machines[reader].sizes()["filters"]
            await subscription.close()
            assert filters > house.machines[reader].sizes()["filters"]

    run_with_foil(disk, NetworkPlan(nodes=3, mode="foil", subscribers=1, epoch_us=HOUR_US), test, more="k_s = 3\n")


def test_what_waits_for_a_broker_goes_out_when_there_is_one(disk: Path) -> None:
    async def test(house: LiveFoil) -> None:
        house.broker.end()
        await house.start(*house.names())
        await house.publish_prices(*PRICES[:3])
        async with house.client(house.publisher) as me:
            told = await wait_for_status(me, lambda status: bool(status.hindrances))
            assert told.outbox == 3
            assert "nobody answers there" in told.hindrances[0]
        house.broker.start()
        await house.subscribe(house.subscribers[0])
        assert await house.read(house.subscribers[0], 3) == ["500", "501", "502"]
        async with house.client(house.publisher) as me:
            await wait_for_status(me, lambda status: not status.outbox and not status.hindrances)

    run_with_foil(disk, NetworkPlan(nodes=3, mode="foil", subscribers=1, epoch_us=HOUR_US), test)

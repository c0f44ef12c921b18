"""Server and proxy are really killed at random moments: no confirmed publication is lost, and no subscriber gets one
twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_relay import LiveRelay, run_with_relay
from veilcast.cli.local.network import NetworkPlan

PLAN = NetworkPlan(nodes=3, mode="relay", publishers=1, subscribers=2)
KILLS = 8


@pytest.mark.all_only
@pytest.mark.parametrize("victim", ["server", "proxy"])
def test_killed_at_any_moment_a_host_loses_nothing_that_it_promised(victim: str, disk: Path) -> None:
    other = "proxy" if victim == "server" else "server"

    async def test(house: LiveRelay) -> None:
        await house.start(other, house.publisher, *house.subscribers)
        await house.spawn(victim)

        async def kill() -> None:
            house.kill(victim)
            await house.spawn(victim)

        await house.publish_while(kill, KILLS)

    run_with_relay(disk, PLAN, test)


@pytest.mark.all_only
@pytest.mark.parametrize("forgetful", [False, True])
def test_a_disk_that_forgets_would_be_noticed(forgetful: bool, disk: Path) -> None:
    """The disk of the proxy, which holds what a subscriber that is away has not taken."""

    async def test(house: LiveRelay) -> None:
        reader = house.subscribers[0]
        await house.start("server", house.publisher, reader)
        await house.spawn("proxy", forgetful=forgetful)
        await house.subscribe(reader)
        await house.stop(reader)
        await house.publish("first")
        house.kill("proxy")
        await house.spawn("proxy", forgetful=forgetful)
        await house.start(reader)
        await house.subscribe(reader)
        await house.publish("second")
        expected = ["second"] if forgetful else ["first", "second"]
        assert await house.read(reader, len(expected)) == expected

    run_with_relay(disk, PLAN, test)

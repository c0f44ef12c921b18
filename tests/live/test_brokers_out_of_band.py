"""Keys out of band on loopback, with TLS and disks: an overlay with a repository, of which one replica is killed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support.live_brokers import LiveBrokers, make_plan, run_with_brokers
from veilcast.authority.topic_record import Profile


@pytest.mark.parametrize("profile", ["hardened", pytest.param("paper", marks=pytest.mark.all_only)])
def test_readers_open_what_comes_with_keys_that_no_broker_carries(profile: Profile, disk: Path) -> None:
    plan = make_plan({"b": ("drop",)}, profile=profile)
    plan = msgspec.structs.replace(plan, overlay=msgspec.structs.replace(plan.brokers, repository=3))

    async def test(house: LiveBrokers) -> None:
        await house.start(
            *(host for host in house.brokers if host != "repository-2"), house.publisher, *house.subscribers
        )
        await house.spawn("repository-2")
        for reader in house.subscribers:
            await house.subscribe(reader)
        await house.publish(*[f"early {number}" for number in range(10)])
        for reader in house.subscribers:
            await house.read(reader, 10)
        held = [
            facts["sizes"]["keys"]
            for host, facts in (await house.broker_facts()).items()
            if host.startswith("repository")
        ]
        assert all(held), "a share of each key lies on each shelf"
        house.kill("repository-2")
        bodies = [f"late {number}" for number in range(20)]
        await house.publish(*bodies)
        for reader in house.subscribers:
            assert await house.read(reader, 20) == sorted(bodies)
        for host, facts in (await house.broker_facts()).items():
            if facts is not None and not host.startswith("repository"):
                assert facts["sizes"]["keys"] == 0

    run_with_brokers(disk, plan, test)

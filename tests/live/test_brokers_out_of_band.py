"""Keys out of band on loopback, with TLS and disks: an overlay with a repository, of which one replica is killed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support.broker_house import House, in_house, plan_of
from veilcast.authority.record import Profile


@pytest.mark.parametrize("profile", ["hardened", pytest.param("paper", marks=pytest.mark.all_only)])
def test_readers_open_what_comes_with_keys_that_no_broker_carries(profile: Profile, disk: Path) -> None:
    plan = plan_of({"b": ("drop",)}, profile=profile)
    plan = msgspec.structs.replace(plan, overlay=msgspec.structs.replace(plan.brokers, repository=3))

    async def test(house: House) -> None:
        await house.start(*(host for host in house.brokers if host != "repository-2"), house.publisher, *house.readers)
        await house.spawn("repository-2")
        for reader in house.readers:
            await house.subscribe(reader)
        await house.publish(*[f"early {number}" for number in range(10)])
        for reader in house.readers:
            await house.read(reader, 10)
        held = [facts["sizes"]["keys"] for host, facts in (await house.told()).items() if host.startswith("repository")]
        assert all(held), "a share of each key lies on each shelf"
        house.kill("repository-2")
        bodies = [f"late {number}" for number in range(20)]
        await house.publish(*bodies)
        for reader in house.readers:
            assert await house.read(reader, 20) == sorted(bodies)
        for host, facts in (await house.told()).items():
            if facts is not None and not host.startswith("repository"):
                assert facts["sizes"]["keys"] == 0

    in_house(disk, plan, test)

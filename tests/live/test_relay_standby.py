"""Servers on one PostgreSQL database: servers and database are really killed, and no confirmed publication is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from support import postgres_server
from support.live_relay import LiveRelay, run_with_relay
from support.postgres_server import PostgresServer
from veilcast.cli.local.network import NetworkPlan

MISSING = postgres_server.reason_to_skip()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
PLAN = NetworkPlan(nodes=3, mode="relay", publishers=1, subscribers=2)
KILLS = 6


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.end()


async def publish_while(house: LiveRelay, disturb: Callable[[], Awaitable[None]]) -> None:
    await house.start("proxy", house.publisher, *house.subscribers)
    await house.publish_while(disturb, KILLS)


@pytest.mark.all_only
def test_a_server_killed_at_any_moment_is_replaced_by_the_other_without_loss(
    disk: Path, database: PostgresServer
) -> None:
    async def test(house: LiveRelay) -> None:
        serving, standing_by = "server", "standby"
        house.add_standby(standing_by, database.name)
        await house.spawn(serving)
        await house.spawn(standing_by, may_stand_by=True)

        async def disturb() -> None:
            nonlocal serving, standing_by
            house.kill(serving)
            await house.hear(standing_by, "listening at")
            serving, standing_by = standing_by, serving
            await house.spawn(standing_by, may_stand_by=True)

        await publish_while(house, disturb)

    run_with_relay(disk, PLAN, test)


@pytest.mark.all_only
def test_a_database_killed_at_any_moment_is_waited_for_without_loss(disk: Path, database: PostgresServer) -> None:
    """Either server may have the records afterwards."""

    async def test(house: LiveRelay) -> None:
        house.add_standby("standby", database.name)
        await house.spawn("server")
        await house.spawn("standby", may_stand_by=True)

        async def disturb() -> None:
            await asyncio.to_thread(database.kill)
            for name in ("server", "standby"):
                await house.hear(name, "waiting for the database")
            await asyncio.to_thread(database.start)

        await publish_while(house, disturb)

    run_with_relay(disk, PLAN, test)


@pytest.mark.all_only
def test_server_and_database_killed_together_have_all_that_was_confirmed(disk: Path, database: PostgresServer) -> None:
    async def test(house: LiveRelay) -> None:
        house.add_standby("standby", database.name)
        await house.spawn("server")

        async def disturb() -> None:
            house.kill("server")
            await asyncio.to_thread(database.kill)
            await asyncio.to_thread(database.start)
            await house.spawn("server")

        await publish_while(house, disturb)

    run_with_relay(disk, PLAN, test)

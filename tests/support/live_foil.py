"""Live foiling members, at a mosquitto broker that a test can stop and start again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.live_network import LiveNetwork as AnyHouse
from support.waits import HANG_S
from veilcast.cli.compose import compose
from veilcast.cli.local import mosquitto
from veilcast.cli.local.foil import broker_directory
from veilcast.cli.local.mosquitto import Mosquitto
from veilcast.cli.local.network import NetworkPlan
from veilcast.errors import LocalError
from veilcast.foil.member import FoilMember
from veilcast.net.service import ServiceSetup

HASTY = """\
connect_us = 100000
again_us = 200000
retry_us = 3000000

"""
"""Settings of the table `foil`: tests do not wait for delays that only reduce a broker's load."""


class LiveFoil(AnyHouse):
    """`more`: further lines for the table `foil` of every member."""

    def __init__(self, directory: Path, plan: NetworkPlan, more: str = "", settings: str = "") -> None:
        super().__init__(directory, plan)
        for name in self.names():
            file = self.file(name)
            file.write_text(file.read_text().replace("[foil]\n", f"[foil]\n{HASTY}{more}"))
        self.broker = Mosquitto(broker_directory(directory), self.net.hosts[0], settings)
        self.machines: dict[str, FoilMember] = {}

    @contextmanager
    def service(self, name: str) -> Iterator[ServiceSetup[Any]]:
        with compose(*self.member(name)) as made:
            assert isinstance(made.machine, FoilMember)
            self.machines[name] = made.machine
            yield made

    async def publish_prices(self, *prices: float) -> None:
        """Publish each price and wait until it is on the publisher's disk; the body repeats the number."""
        async with self.client(self.publisher) as me:
            for price in prices:
                await me.publish(self.net.topic, f"{price:g}", price=price)


def has_mosquitto() -> bool:
    try:
        mosquitto.find_mosquitto()
    except LocalError:
        return False
    return True


def run_with_foil(
    directory: Path,
    plan: NetworkPlan,
    test: Callable[[LiveFoil], Awaitable[None]],
    *,
    more: str = "",
    settings: str = "",
) -> None:
    async def run() -> None:
        house = LiveFoil(directory, plan, more, settings)
        try:
            house.broker.start()
            async with asyncio.timeout(HANG_S):
                await test(house)
        finally:
            try:
                await house.end()
            finally:
                house.broker.end()

    asyncio.run(run())

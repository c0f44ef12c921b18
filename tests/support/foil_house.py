"""Members who foil, in a house, at a mosquitto that can be ended and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.house import House as AnyHouse
from support.house import until as until
from support.patience import HANG_S
from veilcast.cli import mosquitto
from veilcast.cli.compose import compose
from veilcast.cli.localfoil import broker_directory
from veilcast.cli.localnet import Plan
from veilcast.cli.mosquitto import Mosquitto
from veilcast.errors import LocalError
from veilcast.foil.member import FoilMember
from veilcast.net.service import Station

HASTY = """\
connect_us = 100000
again_us = 200000
retry_us = 3000000

"""
"""In the table `foil`: tests wait for nothing that only spares a broker."""


class House(AnyHouse):
    """`more`: further lines for the table `foil` of every member."""

    def __init__(self, directory: Path, plan: Plan, more: str = "", settings: str = "") -> None:
        super().__init__(directory, plan)
        for name in self.names():
            file = self.file(name)
            file.write_text(file.read_text().replace("[foil]\n", f"[foil]\n{HASTY}{more}"))
        self.broker = Mosquitto(broker_directory(directory), self.net.hosts[0], settings)
        self.machines: dict[str, FoilMember] = {}

    @contextmanager
    def station(self, name: str) -> Iterator[Station[Any]]:
        with compose(*self.member(name)) as made:
            assert isinstance(made.machine, FoilMember)
            self.machines[name] = made.machine
            yield made

    async def say(self, *prices: float) -> None:
        """Publish each, on the disk of the publisher; the body says the number again."""
        async with self.client(self.publisher) as me:
            for price in prices:
                await me.publish(self.net.topic, f"{price:g}", price=price)


def is_here() -> bool:
    try:
        mosquitto.program()
    except LocalError:
        return False
    return True


def in_house(
    directory: Path,
    plan: Plan,
    test: Callable[[House], Awaitable[None]],
    *,
    more: str = "",
    settings: str = "",
) -> None:
    async def run() -> None:
        house = House(directory, plan, more, settings)
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

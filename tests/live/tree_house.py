"""A tree in a house: a directory and nodes on one event loop, all in one Tor of a private network, or in none."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from patience import HANG_S
from veilcast.cli import localtree
from veilcast.cli.compose import compose
from veilcast.cli.localnet import Plan
from veilcast.cli.tap import tapped
from veilcast.net.service import Station
from veilcast.net.tor import Tor

sys.path.insert(0, str(Path(__file__).parent))
from house import House as AnyHouse
from house import until as until

HASTY = """\
spread_us = 200000
again_us = 500000
probe_us = 1000000
probes_max = 8
ready_share = 0.75
retry_us = 5000000
probe_wait_us = 6000000
"""
"""In the table `tree`, which comes last in a member's file. All are behind one Tor, on a machine that may be busy: to
give up calls that are only slow, and to make others in their place, would make all slower."""


class House(AnyHouse):
    def __init__(self, directory: Path, plan: Plan, tor: Tor | None = None, hasty: str = HASTY) -> None:
        super().__init__(directory, plan, hasty)
        self.tor = tor

    @contextmanager
    def station(self, name: str) -> Iterator[Station[Any]]:
        with ExitStack() as parts:
            if name == localtree.DIRECTORY:
                made: Station[Any] = parts.enter_context(localtree.composed(self.directory, self.tor))
            else:
                around = parts.enter_context(tapped(self.tap(name), name)) if self.net.plan.tap else None
                made = parts.enter_context(compose(*self.member(name), around, nullcontext(self.tor)))
            yield replace(made, watch=None)  # One for all is enough, and a test notices by itself.

    async def acquainted(self) -> None:
        """Returns when every member knows all others. Who subscribes before that plants its first tree among those it
        knows, and what is offered to others before they are told of it does not reach it."""

        async def knows_all(name: str) -> None:
            async with self.client(name) as me:
                await until(me, lambda status: status.members >= self.net.plan.nodes)

        members = [self.publisher, *self.readers, *self.others]
        await asyncio.gather(*map(knows_all, members))

    def tap(self, name: str) -> Path:
        return self.directory / name / "tap"


def in_house(
    directory: Path,
    plan: Plan,
    test: Callable[[House], Awaitable[None]],
    *,
    tor: Tor | None = None,
    hasty: str = HASTY,
) -> None:
    async def run() -> None:
        house = House(directory, plan, tor, hasty)
        try:
            async with asyncio.timeout(HANG_S):
                await test(house)
        finally:
            await house.end()

    asyncio.run(run())

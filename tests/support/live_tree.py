"""A live tree: a directory and nodes on one event loop, each behind its own Tor, or all without Tor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.live_network import LiveNetwork as AnyHouse
from support.live_network import wait_for_status
from support.waits import HANG_S
from veilcast.cli.compose import compose
from veilcast.cli.local import tree
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.tap import open_tap
from veilcast.net.service import ServiceSetup
from veilcast.net.tor import Tor, start_tor

HASTY = """\
spread_us = 200000
again_us = 500000
probe_us = 1000000
probes_max = 8
ready_share = 0.75
retry_us = 5000000
probe_wait_us = 6000000
"""
"""Settings of the table `tree`, which comes last in a member's file. On a busy machine, giving up a slow call and
replacing it by another would make all calls slower."""


class LiveTree(AnyHouse):
    def __init__(self, directory: Path, plan: NetworkPlan, tors: Sequence[Tor] = (), hasty: str = HASTY) -> None:
        """`tors`: one for the directory and for each node, or none."""
        super().__init__(directory, plan, hasty)
        self._tors = dict(zip(self.names(), tors, strict=True)) if tors else {}

    @contextmanager
    def service(self, name: str) -> Iterator[ServiceSetup[Any]]:
        tor = self._tors.get(name)
        with ExitStack() as parts:
            if name in self.net.plan.hosts:
                made: ServiceSetup[Any] = parts.enter_context(tree.compose_host(self.directory, name, tor))
            else:
                around = parts.enter_context(open_tap(self.tap(name), name)) if self.net.plan.tap else None
                made = parts.enter_context(compose(*self.member(name), around, nullcontext(tor)))
            yield replace(made, watch=None)  # One for all is enough, and a test notices by itself.

    async def wait_until_acquainted(self) -> None:
        """Returns when every member knows all others. A member that subscribes earlier installs its first tree among
        the members it knows, and misses publications that are offered to others before they hear of it."""

        async def knows_all(name: str) -> None:
            async with self.client(name) as me:
                await wait_for_status(me, lambda status: status.members >= self.net.plan.nodes)

        members = [self.publisher, *self.subscribers, *self.others]
        await asyncio.gather(*map(knows_all, members))

    def tap(self, name: str) -> Path:
        return self.directory / name / "tap"


@contextmanager
def start_tors(plan: NetworkPlan, base: Path, network: Path) -> Iterator[list[Tor]]:
    """A Tor for the directory and for each node of a plan, all in one network, as in a real one.

    A Tor gives up an introduction point of a service after five failed circuits to it, for two minutes. Nodes that
    share a Tor share this count: after the death of a relay, eight nodes behind one Tor made it give up every service.
    """
    places = [base / str(number) for number in range(len(plan.hosts) + plan.nodes)]
    with ExitStack() as stack, ThreadPoolExecutor(len(places)) as threads:
        yield list(threads.map(lambda place: stack.enter_context(start_tor(place, network=network)), places))


def run_with_tree(
    directory: Path,
    plan: NetworkPlan,
    test: Callable[[LiveTree], Awaitable[None]],
    *,
    tors: Sequence[Tor] = (),
    hasty: str = HASTY,
) -> None:
    async def run() -> None:
        house = LiveTree(directory, plan, tors, hasty)
        try:
            async with asyncio.timeout(HANG_S):
                await test(house)
        finally:
            await house.end()

    asyncio.run(run())

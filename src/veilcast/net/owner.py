"""The owner of a node's machine: joins what it keeps, and the disk, with the event loop, for the clients to use.

The keeper does the book-keeping and waits for nothing; the disk is slow. So one thread writes, all that has gathered
since the last write in one go, and the links go on meanwhile. Whoever was promised something on the disk waits for the
write that has it. A write that fails ends the node: it must not go on as if it had succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Event, Note, Publication
from veilcast.net.agent import Peer, Status
from veilcast.net.udp import UdpDriver
from veilcast.topics import Conjunction


class Kept(Protocol):
    @property
    def unsettled(self) -> int:
        """How many publications are safe and not through yet."""

    @property
    def unread(self) -> Mapping[int, int]:
        """How many notes wait for each subscription's client."""

    @property
    def overdue(self) -> Collection[int]:
        """Publications that have waited for longer than they should."""

    @property
    def lapsed(self) -> Collection[int]:
        """Subscriptions that are not allowed now."""

    @property
    def full(self) -> int:
        """How often a note found its subscription full."""

    @property
    def waiting(self) -> Mapping[int, int | None]:
        """From when on a subscription gets something, if not from its start; None if nobody can say."""


class Keeper(Protocol):
    """What joins a machine with what is kept of it, without waiting; `changes` are the disk's own."""

    def publish(self, publication: Publication, now: int) -> int: ...

    def is_safe(self, record: int) -> bool: ...

    def subscribe(self, interest: Conjunction, now: int) -> int: ...

    def unsubscribe(self, number: int, now: int) -> None: ...

    def acknowledge(self, number: int, note: bytes) -> None: ...

    def interests(self) -> dict[int, Conjunction]: ...

    def status(self) -> Kept: ...

    def take(self, event: Event, now: int) -> bool: ...

    def changes(self) -> list[Any]: ...

    def written(self, changes: Sequence[Any], refused: Sequence[bytes], now: int) -> None: ...


class Disk(Protocol):
    def write(self, changes: Sequence[Any]) -> list[bytes]:
        """May be called in another thread than everything else."""

    def unread(self, subscription: int, after: int = 0, limit: int = 64) -> Sequence[tuple[int, Note]]: ...


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Status` that only the mode knows."""

    mode: str
    profile: str
    members: int
    cover_share: float
    neighbours: int
    member_until_us: int


class View(Protocol):
    """What the composition can tell of the machine."""

    def about(self) -> About: ...

    def peers(self) -> list[Peer]: ...

    def numbers(self) -> Mapping[str, float]: ...


class NodeOwner:
    """Fulfils `service.Owner`."""

    def __init__(self, keeper: Keeper, disk: Disk, driver: UdpDriver, view: View) -> None:
        self._keeper, self._disk, self._driver, self._view = keeper, disk, driver, view
        self._born_us = driver.now()
        self._draining = False
        self._dirty = asyncio.Event()
        self._news = asyncio.Event()
        """Set, and replaced, when a write is done."""
        self._begun = 0
        self._done = 0

    async def run(self) -> None:
        """Write what gathers, for as long as the node lives."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "disk") as thread:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                self._begun += 1
                if changes := self._keeper.changes():
                    refused = await loop.run_in_executor(thread, self._disk.write, changes)
                    self._keeper.written(changes, refused, self._driver.now())
                    self._driver.touch()
                self._done = self._begun
                news, self._news = self._news, asyncio.Event()
                news.set()

    def act_on(self, event: Event) -> None:
        if self._keeper.take(event, self._driver.now()):
            self._dirty.set()

    async def publish(self, publication: Publication) -> None:
        if self._draining:
            raise LocalError("the node is stopping and takes no more publications")
        record = self._keeper.publish(publication, self._driver.now())
        # The machine asks for the record by an event, which the driver brings.
        self._driver.touch()
        while not self._keeper.is_safe(record):
            await self._news.wait()

    async def subscribe(self, interest: Conjunction) -> int:
        number = self._keeper.subscribe(interest, self._driver.now())
        await self._written()
        return number

    async def unsubscribe(self, number: int) -> None:
        self._keeper.unsubscribe(number, self._driver.now())
        await self._written()

    async def notes(self, number: int) -> AsyncGenerator[Note, None]:
        after = 0
        while number in self._keeper.interests():
            # Taken before looking, so that what is written in between wakes us.
            news = self._news
            places = self._disk.unread(number, after, _PAGE)
            for place, note in places:
                yield note
                after = place
            if not places:
                await news.wait()

    async def acknowledge(self, number: int, note: bytes) -> None:
        self._keeper.acknowledge(number, note)
        await self._written()

    def status(self) -> Status:
        kept, now = self._keeper.status(), self._driver.now()
        return Status(
            **msgspec.structs.asdict(self._view.about()),
            subscriptions=len(self._keeper.interests()),
            outbox=kept.unsettled,
            overdue=len(kept.overdue),
            inbox=sum(kept.unread.values()),
            refused=kept.full,
            lapsed=len(kept.lapsed),
            waiting={each: until for each, until in kept.waiting.items() if until is None or until > now},
            uptime_s=(now - self._born_us) / 1e6,
            draining=self._draining,
        )

    def peers(self) -> list[Peer]:
        return self._view.peers()

    def numbers(self) -> Mapping[str, float]:
        kept = self._keeper.status()
        return {**self._view.numbers(), "outbox_records": kept.unsettled, "inbox_notes": sum(kept.unread.values())}

    async def finish(self) -> None:
        self._draining = True
        await self._written()
        while self._keeper.status().unsettled:
            await self._news.wait()

    async def _written(self) -> None:
        """Wait until all that the keeper has been told by now is on the disk."""
        self._driver.touch()
        self._dirty.set()
        # A write under way may have begun before; the next one has it for certain.
        goal = self._begun + 1
        while self._done < goal:
            await self._news.wait()


_PAGE: Final = 16
"""Notes read from the disk at once; each may be large."""

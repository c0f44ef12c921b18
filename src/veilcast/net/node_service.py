"""The owner of a node's machine: joins what it keeps, and the disk, with the event loop, for the clients to use.

The keeper does the book-keeping and waits for nothing; a `GroupCommit` brings it to the disk. Whoever was promised
something
on the disk waits for the write that has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Delay, Note, Publication
from veilcast.net.agent import Peer, Status, Waiting
from veilcast.net.group_commit import EventJournal, GroupCommit, ServiceDriver
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


class Keeper(EventJournal, Protocol):
    """What joins a machine with what is kept of it."""

    def publish(self, publication: Publication, now: int) -> int: ...

    def is_stored(self, record: int) -> bool: ...

    def subscribe(self, interest: Conjunction, now: int, *, keep: bool) -> int: ...

    def unsubscribe(self, number: int, now: int) -> None: ...

    def temporary(self) -> Collection[int]: ...

    def acknowledge(self, number: int, note: bytes) -> None: ...

    def interests(self) -> dict[int, Conjunction]: ...

    def status(self) -> Kept: ...


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
    hindrances: tuple[str, ...] = ()
    delay: Delay | None = None


class View(Protocol):
    """What the composition can tell of the machine."""

    def about(self) -> About: ...

    def peers(self) -> list[Peer]: ...

    def numbers(self) -> Mapping[str, float]: ...


class NodeService:
    """Fulfils `service.Owner`."""

    def __init__(self, keeper: Keeper, disk: Disk, driver: ServiceDriver, view: View) -> None:
        self._keeper, self._disk, self._driver, self._view = keeper, disk, driver, view
        self._writer = GroupCommit(keeper, disk.write, driver)
        self.run, self.act_on = self._writer.run, self._writer.act_on
        self._born_us = driver.now()
        self._draining = False

    async def publish(self, publication: Publication) -> None:
        if self._draining:
            raise LocalError("the node is stopping and takes no more publications")
        record = self._keeper.publish(publication, self._driver.now())
        # The machine asks for the record by an event, which the driver brings.
        self._driver.touch()
        while not self._keeper.is_stored(record):
            await self._writer.committed.wait()

    async def subscribe(self, interest: Conjunction, *, keep: bool) -> int:
        number = self._keeper.subscribe(interest, self._driver.now(), keep=keep)
        await self._writer.flush()
        return number

    async def unsubscribe(self, number: int) -> None:
        self._keeper.unsubscribe(number, self._driver.now())
        await self._writer.flush()

    def temporary(self) -> Collection[int]:
        return self._keeper.temporary()

    async def readiness(self, number: int) -> AsyncGenerator[Waiting | None, None]:
        told: Waiting | bool | None = False
        while number in self._keeper.interests():
            # Taken before looking, so that what is heard in between wakes us.
            news, now = self._writer.committed, self._driver.now()
            until_us = self._keeper.status().waiting.get(number, now)
            waiting = Waiting(until_us) if until_us is None or until_us > now else None
            if waiting != told:
                yield waiting
                told = waiting
                continue
            left_s = None if until_us is None or waiting is None else (until_us - now) / 1e6
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await news.wait()

    async def notes(self, number: int) -> AsyncGenerator[Note, None]:
        after = 0
        while number in self._keeper.interests():
            # Taken before looking, so that what is written in between wakes us.
            news = self._writer.committed
            places = self._disk.unread(number, after, _PAGE)
            for place, note in places:
                yield note
                after = place
            if not places:
                await news.wait()

    async def acknowledge(self, number: int, note: bytes) -> None:
        self._keeper.acknowledge(number, note)
        await self._writer.flush()

    def status(self) -> Status:
        kept, now, about = self._keeper.status(), self._driver.now(), self._view.about()
        if kept.overdue and about.delay is not None:
            # An estimate was wrong. A peer that never confirms must not keep the publisher hoping for ever.
            about = msgspec.structs.replace(about, delay=Delay(about.delay.reason))
        return Status(
            **msgspec.structs.asdict(about),
            subscriptions=len(self._keeper.interests()),
            outbox=kept.unsettled,
            overdue=len(kept.overdue),
            inbox=sum(kept.unread.values()),
            refused=kept.full,
            lapsed=len(kept.lapsed),
            waiting={each: until for each, until in kept.waiting.items() if until is None or until > now},
            uptime_s=(now - self._born_us) / 1e6,
            draining=self._draining,
            faults=self._driver.faults.count,
        )

    def peers(self) -> list[Peer]:
        return self._view.peers()

    def numbers(self) -> Mapping[str, float]:
        kept = self._keeper.status()
        return {**self._view.numbers(), "outbox_records": kept.unsettled, "inbox_notes": sum(kept.unread.values())}

    async def finish(self) -> None:
        self._draining = True
        await self._writer.flush()
        while self._keeper.status().unsettled:
            await self._writer.committed.wait()


_PAGE: Final = 16
"""Notes read from the disk at once; each may be large."""

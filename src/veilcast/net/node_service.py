"""The service of a member's node: offers the machine and its disk to the clients of the control socket.

`MemberRecords` and `NodeStore` do the work without waiting. This class waits for the disk and wakes clients. It keeps
two promises:

- `publish` returns when the publication is on the disk;
- `notes` yields a note again, to every client that asks for the notes of its subscription, until `acknowledge` has
  returned for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Delay, Event, Left, Note, Publication
from veilcast.net.control_protocol import Peer, Status, Waiting
from veilcast.net.group_commit import GroupCommit
from veilcast.topics import Conjunction

if TYPE_CHECKING:
    from veilcast.net.driver import MachineDriver
    from veilcast.net.transport import Transport
    from veilcast.node.member_records import MemberRecords
    from veilcast.node.member_view import MemberView
    from veilcast.node.store import NodeStore


class NodeService:
    """The only caller of a member's machine: clients reach the machine through this class alone."""

    def __init__(
        self,
        records: MemberRecords,
        store: NodeStore,
        driver: MachineDriver,
        view: MemberView,
        transport: Transport,
        reload: Callable[[], Awaitable[tuple[bool, tuple[str, ...]]]],
    ) -> None:
        """`reload` takes new keys; it returns whether there were any, and what could not be taken."""
        self._records, self._store, self._driver = records, store, driver
        self._view, self._transport, self._reload = view, transport, reload
        self._commit = GroupCommit(records, store.write, driver)
        self._started_us = driver.now()
        self._draining = False
        self._left = asyncio.Event()

    async def run(self) -> None:
        """Write changes as they gather. Never returns; an exception ends the node."""
        await self._commit.run()

    def act_on(self, event: Event) -> None:
        if isinstance(event, Left):
            self._left.set()
        else:
            self._commit.act_on(event)

    async def publish(self, publication: Publication) -> None:
        """Return when the publication is on the disk."""
        if self._draining:
            raise LocalError("the node is stopping and takes no more publications")
        record = self._records.publish(publication, self._driver.now())
        # The machine asks for the record by an event, which the driver delivers.
        self._driver.touch()
        while not self._records.is_stored(record):
            await self._commit.committed.wait()

    async def subscribe(self, interest: Conjunction, *, keep: bool) -> int:
        """Return the number of the subscription; the same one for the same interest.

        Without `keep` the subscription is temporary, unless a client asked to keep it before.
        """
        number = self._records.subscribe(interest, self._driver.now(), keep=keep)
        await self._commit.flush()
        return number

    async def unsubscribe(self, number: int) -> None:
        self._records.unsubscribe(number, self._driver.now())
        await self._commit.flush()

    def temporary(self) -> Collection[int]:
        """The subscriptions that end with their clients: no client has asked to keep them."""
        return self._records.temporary()

    async def readiness(self, number: int) -> AsyncGenerator[Waiting | None, None]:
        """Yield at once, and at each change, what a subscription waits for; None while it receives what is published
        from now on. The generator ends with the subscription."""
        last: Waiting | bool | None = False
        while number in self._records.interests():
            # Taken before looking, so that a change in between wakes us.
            committed, now = self._commit.committed, self._driver.now()
            until_us = self._records.status().waiting.get(number, now)
            waiting = Waiting(until_us) if until_us is None or until_us > now else None
            if waiting != last:
                yield waiting
                last = waiting
                continue
            left_s = None if until_us is None or waiting is None else (until_us - now) / 1e6
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await committed.wait()

    async def notes(self, number: int) -> AsyncGenerator[Note, None]:
        """Yield each unacknowledged note of a subscription once, oldest first, and then new ones as they come."""
        after = 0
        while number in self._records.interests():
            # Taken before looking, so that a write in between wakes us.
            committed = self._commit.committed
            unread = self._store.unread(number, after, _PAGE)
            for place, note in unread:
                yield note
                after = place
            if not unread:
                await committed.wait()

    async def acknowledge(self, number: int, note: bytes) -> None:
        """Return when the acknowledgement is on the disk. An unknown or acknowledged id changes nothing."""
        self._records.acknowledge(number, note)
        await self._commit.flush()

    async def reload(self) -> tuple[bool, tuple[str, ...]]:
        """Take new keys from the disk. Returns whether there were any, and what could not be taken."""
        changed, problems = await self._reload()
        self._driver.touch()
        return changed, problems

    def status(self) -> Status:
        counts, now, peers = self._records.status(), self._driver.now(), self.peers()
        facts = self._view.facts(
            neighbours=sum(peer.up for peer in peers),
            unreachable={peer.address: peer.reason for peer in peers if peer.reason},
            now=now,
        )
        if counts.overdue and facts.delay is not None:
            # An estimate was wrong. A peer that never confirms must not keep the publisher hoping for ever.
            facts = msgspec.structs.replace(facts, delay=Delay(facts.delay.reason))
        return Status(
            **msgspec.structs.asdict(facts),
            subscriptions=len(self._records.interests()),
            outbox=counts.unsettled,
            overdue=len(counts.overdue),
            inbox=sum(counts.unread.values()),
            refused=counts.full,
            lapsed=len(counts.lapsed),
            waiting={each: until for each, until in counts.waiting.items() if until is None or until > now},
            uptime_s=(now - self._started_us) / 1e6,
            draining=self._draining,
            faults=self._driver.faults.count,
        )

    def peers(self) -> list[Peer]:
        return list(self._transport.peers())

    def numbers(self) -> Mapping[str, float]:
        counts = self._records.status()
        return {
            **self._transport.numbers(),
            **self._view.numbers(),
            "outbox_records": counts.unsettled,
            "inbox_notes": sum(counts.unread.values()),
        }

    async def finish(self) -> None:
        """Accept no more publications; return when all accepted ones are settled, and neighbours know that this node
        leaves."""
        self._draining = True
        await self._commit.flush()
        while self._records.status().unsettled:
            await self._commit.committed.wait()
        if self._records.leave(self._driver.now()):
            self._driver.touch()
            with contextlib.suppress(TimeoutError):
                # Without a goodbye neighbours miss the node's heartbeats some seconds later.
                await asyncio.wait_for(self._left.wait(), _GOODBYE_S)


_GOODBYE_S: Final = 5.0
_PAGE: Final = 16
"""Notes read from the disk at once; each may be large."""

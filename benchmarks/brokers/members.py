"""The members of a broker, whichever it is: one process publishes, another reads, and both do as they are told.

Their owner keeps everything in memory: what a machine wants stored is stored at once, and every note is acknowledged as
it comes. So all that is counted is what machine and driver do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol, TypeAlias

from veilcast.machine import Delivered, Event, Machine, Member, Publication, Record, Settled, Waiting
from veilcast.net.driver import MachineDriver
from veilcast.topics import TOPIC, Label


class Stored(Member, Protocol):
    def stored(self, record: int, now: int) -> None: ...


class Joined(NamedTuple):
    """A member, and what drives it for an owner who acts on its events."""

    member: Stored
    drive: Callable[[Machine, Callable[[Event], object]], MachineDriver]


Join: TypeAlias = Callable[[int], Joined]
"""Makes a member by its number: 0 publishes, the others read."""


class Order(NamedTuple):
    """Publish this number of notes, with a bound on those in flight or at an interval."""

    publications: int
    window: int
    every_s: float = 0.0


class BrokerMemberOwner:
    def __init__(self, joined: Joined) -> None:
        self.member = joined.member
        self.driver = joined.drive(self.member, self._act_on)
        self.waiting: dict[int, None] = {}
        self.under_way = 0
        self.arrived: list[tuple[int, float]] = []
        """The publications, and the time that each took."""
        self.news = asyncio.Event()
        self.driver.open()

    def publish(self, number: int, label: str) -> None:
        body = _BODY.pack(number, time.perf_counter()).ljust(BODY, b".")
        self.under_way += 1
        self.member.publish(Publication(((TOPIC, label),), body), self.driver.now())
        self.driver.touch()

    def subscribe(self, label: str) -> None:
        self.waiting[self.member.subscribe(Label(label), self.driver.now())] = None
        self.driver.touch()

    async def subscribed(self) -> None:
        await self.until(lambda: not self.waiting)

    async def reached(self, count: int) -> None:
        await self.until(lambda: len(self.arrived) >= count)

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()

    def _act_on(self, event: Event) -> None:
        match event:
            case Record(record):
                self.member.stored(record, self.driver.now())
                return
            case Settled():
                self.under_way -= 1
            case Waiting(number, until_us) if until_us is not None:
                self.waiting.pop(number, None)
            case Delivered(_, note):
                number, sent = _BODY.unpack_from(note.publication.body)
                self.arrived.append((number, time.perf_counter() - sent))
                self.member.acknowledge(note.id, self.driver.now())
        self.news.set()


@contextmanager
def member_process(work: Callable[..., Any], *arguments: Any) -> Iterator[tuple[int, Connection]]:
    """Run a member in a process of its own: its id, and the line on which it is told what to do."""
    ours, theirs = _FORK.Pipe()
    child = _FORK.Process(target=_run, args=(work, theirs, *arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        assert child.pid is not None
        hear(ours)
        yield child.pid, ours
    finally:
        child.terminate()
        child.join()


def hear(line: Connection) -> Any:
    if not line.poll(PATIENCE_S):
        raise SystemExit("a member takes too long")
    return line.recv()


async def run_publisher(line: Connection, join: Join, labels: list[str]) -> None:
    me = BrokerMemberOwner(join(0))
    line.send("ready")
    while order := await asyncio.to_thread(line.recv):
        due = time.perf_counter()
        for number in range(order.publications):
            if order.every_s:
                due += order.every_s
                await asyncio.sleep(due - time.perf_counter())
            me.publish(number, labels[number % len(labels)])
            await me.until(lambda: me.under_way < order.window)
        await me.until(lambda: not me.under_way)
        line.send(time.perf_counter())


async def run_readers(line: Connection, join: Join, labels: list[str], readers: int, others: list[str]) -> None:
    """Each of the readers wants all labels; the first of them also what nobody publishes."""
    us = [BrokerMemberOwner(join(1 + number)) for number in range(readers)]
    for me in us:
        for label in labels:
            me.subscribe(label)
    for label in others:
        us[0].subscribe(label)
    for me in us:
        await me.subscribed()
    line.send("ready")
    while count := await asyncio.to_thread(line.recv):
        for me in us:
            await me.reached(count)
        line.send((time.perf_counter(), [took for me in us for _, took in me.arrived]))
        for me in us:
            if sorted(number for number, _ in me.arrived) != list(range(count)):
                raise SystemExit("a reader has not got each publication once")
            me.arrived.clear()


def _run(work: Callable[..., Any], *arguments: Any) -> None:
    asyncio.run(work(*arguments))


BODY = 128
PATIENCE_S = 120
_BODY = struct.Struct(">Id")
_FORK = multiprocessing.get_context("fork")
"""Members inherit their keyrings, which are not to be pickled."""

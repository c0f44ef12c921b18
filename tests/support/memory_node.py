"""A node's service that keeps everything in memory, and the control socket that serves it to the tests' clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

from veilcast.errors import FullError, LocalError, UnknownTopicError
from veilcast.machine import Delay, Delivered, Event, Note, Publication
from veilcast.net.control import ControlServer
from veilcast.net.control_protocol import Peer, Status, Waiting
from veilcast.net.node_service import NodeService
from veilcast.topics import Conjunction, Constraint, Equal, Label


class MemoryNode(NodeService):
    """Delivers every publication to its own matching subscriptions. Ids count from 1."""

    def __init__(self, *, members: int = 24) -> None:
        self.members = members
        self.published: list[Publication] = []
        self.acknowledged: list[bytes] = []
        self.interests: dict[int, Conjunction] = {}
        self.kept: dict[int, dict[bytes, Note]] = {}
        self.passing: set[int] = set()
        """Subscriptions that no client has asked to keep."""
        self.subscriptions_max = 1_000
        self.later = dict(LATER)
        self.news = asyncio.Condition()
        self.finished = asyncio.Event()
        self.hold_finish = asyncio.Event()
        self.hold_finish.set()
        self.draining = False
        self.reading = 0
        """Iterators over notes that are open."""

    async def publish(self, publication: Publication) -> None:
        if ("topic", "nobody/knows") in publication.pairs:
            raise UnknownTopicError("no topic 'nobody/knows'")
        if ("topic", "bug") in publication.pairs:
            raise ZeroDivisionError("a secret plaintext")
        if self.draining:
            raise LocalError("the node is stopping")
        self.published.append(publication)
        note = Note(len(self.published).to_bytes(16, "big"), publication)
        async with self.news:
            for number, interest in self.interests.items():
                if interest.matches(publication):
                    self.kept[number][note.id] = note
            self.news.notify_all()

    async def subscribe(self, interest: Conjunction, *, keep: bool) -> int:
        for number, known in self.interests.items():
            if known.constraints == interest.constraints:
                if keep:
                    self.passing.discard(number)
                return number
        if len(self.interests) >= self.subscriptions_max:
            raise FullError(f"there are {self.subscriptions_max} subscriptions already")
        number = len(self.kept)
        self.interests[number], self.kept[number] = interest, {}
        if not keep:
            self.passing.add(number)
        async with self.news:
            self.news.notify_all()
        return number

    async def unsubscribe(self, number: int) -> None:
        del self.interests[number]
        self.passing.discard(number)
        async with self.news:
            self.news.notify_all()

    def topics(self) -> list[str]:
        """The topics of the current subscriptions."""
        return sorted(
            constraint.text
            for interest in self.interests.values()
            for constraint in interest.constraints
            if isinstance(constraint, Equal)
        )

    def temporary(self) -> set[int]:
        return self.passing

    async def readiness(self, number: int) -> AsyncGenerator[Waiting | None, None]:
        told: Waiting | bool | None = False
        while number in self.interests:
            waiting = self.waiting().get(number)
            if waiting != told:
                told = waiting
                yield waiting
            async with self.news:
                await self.news.wait()

    async def stands(self, *constraints: Constraint) -> None:
        """Make this interest ready."""
        del self.later[constraints]
        async with self.news:
            self.news.notify_all()

    def waiting(self) -> dict[int, Waiting]:
        found = {n: each.constraints for n, each in self.interests.items()}
        return {n: Waiting(self.later[wanted]) for n, wanted in found.items() if wanted in self.later}

    async def notes(self, number: int) -> AsyncGenerator[Note, None]:
        handed: set[bytes] = set()
        self.reading += 1
        try:
            while number in self.interests:
                fresh = [note for note in self.kept[number].values() if note.id not in handed]
                for note in fresh:
                    handed.add(note.id)
                    yield note
                if not fresh:
                    async with self.news:
                        await self.news.wait()
        finally:
            self.reading -= 1

    async def acknowledge(self, number: int, note: bytes) -> None:
        self.acknowledged.append(note)
        self.kept[number].pop(note, None)

    def status(self) -> Status:
        return Status(
            mode="mesh",
            profile="hardened",
            members=self.members,
            cover_share=0.78,
            neighbours=5,
            member_until_us=4_102_444_800_000_000,
            subscriptions=len(self.interests),
            outbox=1,
            overdue=1,
            refused=2,
            lapsed=3,
            inbox=sum(map(len, self.kept.values())),
            waiting={number: each.until_us for number, each in self.waiting().items()},
            uptime_s=12.5,
            draining=self.draining,
            hindrances=("nobody answers",) if self.members == HINDERED else (),
            delay=DELAYS.get(self.members),
        )

    def peers(self) -> list[Peer]:
        return [Peer(address="192.0.2.7:4000", up=True, since_s=3.0)]

    async def finish(self) -> None:
        self.draining = True
        await self.hold_finish.wait()
        self.finished.set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def act_on(self, event: Event) -> None:
        assert isinstance(event, Delivered)

    def numbers(self) -> Mapping[str, float]:
        return {"cells_sent_total": 7, "cells_padding_total": 6}

    async def until_subscribed(self, *constraints: Constraint) -> None:
        async with self.news:
            await self.news.wait_for(lambda: any(i.constraints == constraints for i in self.interests.values()))


@contextlib.asynccontextmanager
async def serve_control(
    directory: Path, desk: MemoryNode, clients_max: int = 16, grace_s: float | None = None
) -> AsyncIterator[ControlServer]:
    """Serve the node at a control socket; `directory / "node.toml"` names the socket."""
    (directory / "node.toml").write_text('control = "node.sock"\n')
    server = ControlServer(directory / "node.sock", desk, lambda: desk.hold_finish.set(), clients_max, grace_s)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


LATER: dict[tuple[Constraint, ...], int | None] = {
    Label("later").constraints: 4_102_444_800_000_000,
    Label("unheard").constraints: None,
}
"""Interests that are not ready at first."""
HINDERED = 21
"""The node reports a hindrance if it has this number of members."""
DELAYS = {
    31: Delay("the lots are drawn", 4_102_444_800_000_000),
    32: Delay("the relay does not answer"),
    33: Delay("it is on its way", 1),
}
"""The delay of publications, by the number of members."""
"""Nothing here takes that long; it ends a test that hangs."""

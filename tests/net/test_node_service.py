from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.waits import HANG_S, until
from veilcast import Label, LocalError, Publication, StorageError, connect
from veilcast.machine import Address, Delay, Delivered, Event, Frame, Note, Record
from veilcast.net.clock import SystemClock
from veilcast.net.control_protocol import Peer
from veilcast.net.driver import MachineDriver
from veilcast.net.node_service import NodeService
from veilcast.net.service import NodeSetup, serve
from veilcast.net.udp import udp_driver
from veilcast.node.member_view import MemberFacts
from veilcast.topics import Conjunction


class RecordCounts(NamedTuple):
    unsettled: int
    unread: dict[int, int]
    waiting: dict[int, int | None]
    overdue: tuple[int, ...]
    lapsed: tuple[int, ...]
    full: int


class ScriptedNode:
    """A machine that delivers its publications once they are stored, with its records and a disk in memory: the least
    that a service needs. Writes wait while `slow` is clear, and fail once `broken` is set."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.waiting: dict[int, Publication] = {}
        self.safe: dict[int, bool] = {}
        self.wanted: dict[int, Conjunction] = {}
        self.todo: list[tuple[str, Any]] = []
        self.inbox: dict[int, tuple[int, Note]] = {}
        self.writes: list[list[tuple[str, Any]]] = []
        self.later: dict[int, int | None] = {}
        self.slow = threading.Event()
        self.slow.set()
        self.broken = False
        self.overdue: tuple[int, ...] = (5,)

    # The machine.
    def receive(self, data: bytes, source: Address, now: int) -> None: ...
    def handle_timer(self, now: int) -> None: ...
    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return []

    def next_event(self) -> Event | None:
        return self.events.pop(0) if self.events else None

    # The keeper.
    def publish(self, publication: Publication, now: int) -> int:
        record = len(self.safe)
        self.waiting[record], self.safe[record] = publication, False
        self.events.append(Record(record, b""))
        return record

    def is_stored(self, record: int) -> bool:
        return self.safe[record]

    def subscribe(self, interest: Conjunction, now: int, *, keep: bool) -> int:
        self.wanted[1] = interest
        self.todo.append(("subscribe", 1))
        return 1

    def temporary(self) -> tuple[int, ...]:
        return ()

    def unsubscribe(self, number: int, now: int) -> None:
        del self.wanted[number]
        self.todo.append(("unsubscribe", number))

    def acknowledge(self, number: int, note: bytes) -> None:
        self.todo.append(("acknowledge", note))

    def interests(self) -> dict[int, Conjunction]:
        return dict(self.wanted)

    def status(self) -> RecordCounts:
        return RecordCounts(len(self.waiting), {1: len(self.inbox)}, self.later, self.overdue, (2, 3), 4)

    def take(self, event: Event, now: int) -> bool:
        match event:
            case Record(record, _):
                self.todo.append(("keep", record))
            case Delivered(_, note):
                self.todo.append(("arrive", note))
        return True

    def leave(self, now: int) -> bool:
        return False

    def changes(self) -> list[Any]:
        changes, self.todo = self.todo, []
        return changes

    def written(self, changes: Sequence[Any], refused: Sequence[bytes], now: int) -> None:
        for kind, what in changes:
            if kind == "keep":
                self.safe[what] = True
                self.events.append(Delivered(1, Note(bytes([what]), self.waiting.pop(what))))

    # The disk.
    def write(self, changes: Sequence[Any]) -> list[bytes]:
        assert self.slow.wait(HANG_S)
        if self.broken:
            raise StorageError("the disk is full")
        self.writes.append(list(changes))
        for kind, what in changes:
            if kind == "arrive":
                self.inbox[len(self.writes)] = (len(self.writes), what)
            if kind == "acknowledge":
                self.inbox = {place: found for place, found in self.inbox.items() if found[1].id != what}
        return []

    def unread(self, subscription: int, after: int = 0, limit: int = 64) -> Sequence[tuple[int, Note]]:
        return [found for place, found in sorted(self.inbox.items()) if place > after][:limit]

    # The view.
    def facts(self, neighbours: int, unreachable: Mapping[str, str], now: int) -> MemberFacts:
        return MemberFacts(
            mode="mesh",
            profile="paper",
            members=3,
            cover_share=0.5,
            neighbours=2,
            member_until_us=1,
            delay=Delay("a root is to confirm it", 7),
        )

    def peers(self) -> list[Peer]:
        return []

    def numbers(self) -> Mapping[str, float]:
        return {"swaps_total": 1}


def run_service(
    directory: Path, test: Callable[[ScriptedNode, Path], Awaitable[None]], drain_s: float = HANG_S
) -> bool:
    async def run() -> bool:
        node, ready = ScriptedNode(), asyncio.Event()
        (directory / "node.toml").write_text('state = "."')

        def hire(driver: MachineDriver) -> NodeService:
            parts: Any = node
            return NodeService(parts, parts, driver, parts, parts, parts)

        service = NodeSetup(
            machine=node,
            make_service=hire,
            make_driver=udp_driver("127.0.0.1:0"),
            control=directory / "control.sock",
            drain_s=drain_s,
        )
        async with asyncio.timeout(HANG_S):
            running = asyncio.create_task(serve(service, lambda _: ready.set()))
            await ready.wait()
            await test(node, directory / "node.toml")
            return await running

    return asyncio.run(run())


def test_publish_returns_when_it_is_written_and_the_note_comes_and_goes_by_the_disk(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        async with connect(config) as me:
            notes = me.subscribe("news")
            await notes.start()
            assert node.writes == [[("subscribe", 1)]]
            await me.publish("news", "one")
            assert ("keep", 0) in node.writes[1]
            note = await anext(notes)
            assert note.publication.body == b"one"
            assert (await me.status()).inbox == 1
            await notes.acknowledge()
            status = await me.status()
            assert (status.inbox, status.subscriptions, status.outbox, status.members) == (0, 1, 0, 3)
            assert (status.overdue, status.lapsed, status.refused) == (1, 2, 4)
            await me.stop()

    assert run_service(tmp_path, test)


def test_a_subscription_waits_until_its_time_has_come(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        async with connect(config) as me:
            notes = me.subscribe("news")
            assert await notes.waiting() is None
            for until_us, expected in ((1 << 62, (1 << 62,)), (1, None), (None, (None,))):
                node.later = {1: until_us}
                await me.publish("news")  # Whatever is written lets the owner look again.
                while await notes.waiting() != expected:
                    await me.status()
            ready = asyncio.ensure_future(notes.ready())
            soon_us = SystemClock().now() + 20_000
            node.later = {1: soon_us}
            await me.publish("news")
            await ready
            assert SystemClock().now() >= soon_us
            await me.stop()

    assert run_service(tmp_path, test)


def test_the_loop_runs_while_the_disk_is_slow_and_gathered_changes_are_one_write(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        async with connect(config) as me, connect(config) as other, connect(config) as third:
            node.slow.clear()
            first = asyncio.create_task(me.publish("news", "one"))
            await until(lambda: node.safe)
            rest = [asyncio.create_task(client.publish("news", "more")) for client in (other, third)]
            async with connect(config) as watcher:
                while (await watcher.status()).outbox < 3:
                    pass
            assert not first.done()
            assert node.writes == []
            node.slow.set()
            await asyncio.gather(first, *rest)
            kept = [[what for kind, what in write if kind == "keep"] for write in node.writes]
            assert [what for write in kept for what in write] == [0, 1, 2]
            assert [1, 2] in kept
            await me.stop()

    assert run_service(tmp_path, test)


def test_an_overdue_publication_has_no_estimate(tmp_path: Path) -> None:
    """Otherwise a peer that never confirms would seem about to confirm for ever."""

    async def test(node: ScriptedNode, config: Path) -> None:
        async with connect(config) as me:
            assert (await me.status()).delay == Delay("a root is to confirm it")
            node.overdue = ()
            assert (await me.status()).delay == Delay("a root is to confirm it", 7)
            await me.stop()

    assert run_service(tmp_path, test)


def test_a_failed_write_ends_the_node_and_confirms_nothing(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        node.broken = True
        async with connect(config) as me:
            with pytest.raises(LocalError, match="gone away, and its log says why; start it again"):
                await me.publish("news", "lost")

    with pytest.raises(StorageError, match="disk is full"):
        run_service(tmp_path, test)
    assert not (tmp_path / "control.sock").exists()


def test_a_failed_write_while_the_node_stops_is_raised(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        node.todo.append(("keep", 0))
        node.broken = True
        async with connect(config) as me:
            await me.stop()

    with pytest.raises(StorageError, match="disk is full"):
        run_service(tmp_path, test)


def test_a_stopping_node_accepts_no_more_and_waits_for_unsettled_publications(tmp_path: Path) -> None:
    async def test(node: ScriptedNode, config: Path) -> None:
        node.waiting[99] = Publication((Label("news").pair,))
        async with connect(config) as me:
            await me.stop()
            while not (await me.status()).draining:
                pass
            with pytest.raises(LocalError, match="takes no more"):
                await me.publish("news", "late")
            del node.waiting[99]
            # Whatever is written next lets the owner look again.
            await me.subscribe("news", keep=True).start()

    assert run_service(tmp_path, test)

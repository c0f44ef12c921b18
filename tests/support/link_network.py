"""Machines with links: a machine that records what it receives, a simulated world of such machines, and a wire on which
machines change their addresses."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence, Sized
from functools import cache
from itertools import count

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.link.config import LinkConfig
from veilcast.link.envelope import PacketSealer
from veilcast.link.link import KeyedChannel
from veilcast.link.machine import LinkMachine
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address, Event, Frame
from veilcast.sim.checkers import Checker
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import World

A, B = Address("a"), Address("b")


@cache
def member_keyrings(count: int, epochs: int = 2) -> list[Keyring]:
    """Members of one network, for this many hours from the start of a world."""
    entropy = random.Random(1).randbytes
    root, made = issuer.create(HOUR_US, entropy), []
    for number in range(count):
        root, ring = issuer.grant_ready(root, f"member {number}", [], epoch_of(START_US, HOUR_US), epochs, entropy)
        made.append(ring)
    return made


class RecordingMachine:
    """Sends what a test passes to `say`, and records received messages and notices about peers."""

    def __init__(self) -> None:
        self.said: list[Frame] = []
        self.heard: list[tuple[Address, bytes]] = []
        self.notices: list[tuple[str, Address]] = []
        self.times: list[int] = []

    def say(self, peer: Address, *messages: bytes) -> None:
        self.said += [Frame(peer, message) for message in messages]

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.heard.append((source, data))
        self.times.append(now)

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self.said = self.said[:limit], self.said[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None

    def peer_up(self, peer: Address, now: int) -> None:
        self.notices.append(("up", peer))

    def peer_lost(self, peer: Address, now: int) -> None:
        self.notices.append(("lost", peer))

    def stored(self, record: int, now: int) -> None:
        pass


class WireObserver(Checker):
    """An observer of every wire: time, source, destination, length."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Address, Address, int]] = []

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        self.seen += [(world.now - START_US, address, frame.destination, len(frame.data)) for frame in frames]


class LinkWorld(World):
    """A simulated world of members with links."""

    def __init__(
        self,
        *names: str,
        config: LinkConfig | None = None,
        seed: int = 1,
        latency_us: int = 20_000,
        keyrings: dict[str, Keyring] | None = None,
        watched: bool = False,
    ) -> None:
        super().__init__(seed=seed, links=LinkDelays(latency_us=(latency_us,)))
        self.wire = WireObserver()
        if watched:
            self.watch(self.wire)
        self._rings = dict(zip(names, member_keyrings(len(names)), strict=True)) | (keyrings or {})
        self._config = config or LinkConfig()
        for name in names:
            self.add(Address(name), self._make)

    def _make(self, birth: Birth) -> LinkMachine:
        return LinkMachine(RecordingMachine(), self._config, self._rings[birth.address], birth.rng, birth.entropy)

    def links(self, name: str) -> LinkMachine:
        machine = self.machine(Address(name))
        assert isinstance(machine, LinkMachine)
        return machine

    def talker(self, name: str) -> RecordingMachine:
        inner = self.links(name).inner
        assert isinstance(inner, RecordingMachine)
        return inner

    def tell(self, name: str, peer: str, *messages: bytes) -> None:
        """Let a machine send messages."""
        self.call(Address(name), lambda machine, now: machine.inner.say(Address(peer), *messages))

    def heard(self, name: str) -> list[bytes]:
        return [message for _, message in self.talker(name).heard]


class MovingLinks:
    """Machines on one wire, each at an address that it may leave. A test may inject datagrams with any source."""

    def __init__(self, config: LinkConfig | None = None, *names: str) -> None:
        self.now = START_US
        self._config = config or LinkConfig()
        self.machines: dict[str, LinkMachine] = {}
        self.where: dict[str, Address] = {}
        for name, ring in zip(names, member_keyrings(len(names)), strict=True):
            self.add(name, ring)
        self.sent: list[tuple[int, Address, Frame]] = []
        """All datagrams on the wire, each with its time and source."""
        self._under_way: list[tuple[int, int, Address, Frame]] = []
        self._number = count().__next__
        self.intercept: Callable[[Address, Frame], list[tuple[Address, Frame]]] | None = None
        """The adversary on the path: maps a datagram and its source to those that travel in its place."""

    def add(self, name: str, ring: Keyring) -> LinkMachine:
        rng = random.Random(name)
        self.machines[name] = LinkMachine(
            RecordingMachine(), self._config, ring, rng, random.Random(rng.random()).randbytes
        )
        self.where[name] = Address(name)
        return self.machines[name]

    def talker(self, name: str) -> RecordingMachine:
        inner = self.machines[name].inner
        assert isinstance(inner, RecordingMachine)
        return inner

    def tell(self, name: str, peer: str, *messages: bytes) -> None:
        self.talker(name).say(Address(peer), *messages)
        self._collect(name)

    def heard(self, name: str) -> list[bytes]:
        return [message for _, message in self.talker(name).heard]

    def inject(self, source: Address, destination: Address, data: bytes) -> None:
        """Put a datagram on the wire, as any node can."""
        heapq.heappush(self._under_way, (self.now, self._number(), source, Frame(destination, data)))

    def cells(self, source: str, destination: str) -> list[bytes]:
        return [frame.data for _, by, frame in self.sent if (by, frame.destination) == (source, destination)]

    def run(self, duration_us: int) -> None:
        end = self.now + duration_us
        while True:
            timers = [(due, name) for name, one in self.machines.items() if (due := one.next_timer()) is not None]
            due_us, due_name = min(timers, default=(end + 1, ""))
            arrival_us = self._under_way[0][0] if self._under_way else end + 1
            if min(due_us, arrival_us) > end:
                self.now = end
                return
            self.now = max(self.now, min(due_us, arrival_us))
            if due_us < arrival_us:
                self.machines[due_name].handle_timer(self.now)
                self._collect(due_name)
                continue
            _, _, source, frame = heapq.heappop(self._under_way)
            for name, place in self.where.items():
                if place == frame.destination:
                    self.machines[name].receive(frame.data, source, self.now)
                    self._collect(name)

    def _collect(self, name: str) -> None:
        for frame in self.machines[name].frames_to_send(self.now, 1 << 20):
            source = self.where[name]
            self.sent.append((self.now, source, frame))
            for place, carried in [(source, frame)] if self.intercept is None else self.intercept(source, frame):
                heapq.heappush(self._under_way, (self.now + 10_000, self._number(), place, carried))


def linked_machines(*names: str, config: LinkConfig | None = None) -> MovingLinks:
    """Machines, of which the first, A, has a link with every other."""
    links = MovingLinks(config, *names)
    for name in names[1:]:
        links.tell(name, "a", b"hello of " + name.encode())
    links.run(5 * SECOND_US)
    assert len(links.heard("a")) == len(names) - 1
    return links


def channel_of(links: MovingLinks, name: str, peer: str) -> KeyedChannel:
    channel = links.machines[name]._links[Address(peer)].channel
    assert channel is not None
    return channel


def send_body(links: MovingLinks, name: str, peer: str, body: bytes) -> None:
    """Send a cell with valid keys and this body."""
    data = channel_of(links, name, peer).generations.session.seal(body, links.now)
    links.inject(links.where[name], Address(peer), data)


def works(links: MovingLinks, name: str, peer: str) -> bool:
    """True if messages in both directions arrive within two seconds."""
    word = b"still there %d" % links.now
    links.tell(name, peer, word)
    links.tell(peer, name, word)
    links.run(2 * SECOND_US)
    return word in links.heard(name) and word in links.heard(peer)


def packet_sealer() -> PacketSealer:
    """The sealer that any member has."""
    links = MovingLinks(None, "a", "b")
    return links.machines["b"]._admission._sealer


def count_entries(machine: LinkMachine) -> int:
    """Entries of all tables that strangers can fill."""
    limits = machine._admission._limits
    tables: list[Sized] = [machine._links, machine._paths, machine._statics, machine._admission, machine._timers]
    return sum(map(len, [*tables, machine._frames, limits._strangers, limits._proven]))

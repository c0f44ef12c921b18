"""A small tree network in memory: a directory, nodes, streams that hide the caller, and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

import msgspec

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.machine import (
    Address,
    Connect,
    Delivered,
    Disconnect,
    Event,
    Frame,
    Publication,
    Record,
    Settled,
    Waiting,
)
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.topics import Conjunction, Integers, Label, Schema, Strings
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.tree.directory import Directory
from veilcast.tree.node import TreeNode
from veilcast.wire import decode, encode
from veilcast.wire.base import Message

SECOND = 1_000_000
TOPIC = "tree"
SCHEMA = Schema((Integers("level", 0, 15, 4), Strings("kind")))
EPOCH_US = 150 * SECOND
START_US = 1_800_000_000 * SECOND
DIRECTORY = Address("directory:1")
QUICK_CONFIG = TreeConfig(
    fetch_us=4 * SECOND,
    spread_us=SECOND,
    again_us=SECOND // 2,
    retry_us=4 * SECOND,
    connect_us=SECOND // 2,
    probe_us=SECOND // 2,
    probe_wait_us=4 * SECOND,
)
DIRECTORY_CONFIG = DirectoryConfig(lease_us=60 * SECOND, publish_us=SECOND // 2)


@cache
def make_authority(profile: Profile) -> Authority:
    entropy = SeededEntropy(derive_bytes(0, "grove", profile))
    made = issuer.create(EPOCH_US, entropy)
    return issuer.declare(made, TopicRecord(TOPIC, SCHEMA, profile=profile), entropy)


@cache
def keyring_of(number: int, profile: Profile) -> Keyring:
    """Every member may publish; -1 is the directory, or the first of several, and -2 the second."""
    seed = number + 1 if number >= -1 else _DIRECTORY_SEEDS - number
    entropy = SeededEntropy(derive_bytes(seed, "grove member", profile))
    first = epoch_of(START_US, EPOCH_US)
    wanted: list[Any] = [(TOPIC, "publisher")] if number >= 0 else []
    standing: Any = "member" if number >= 0 else "directory"
    return issuer.grant_ready(make_authority(profile), f"m{number}", wanted, first, 64, entropy, standing)[1]


@cache
def name_of(number: int, profile: Profile) -> bytes:
    return fingerprint(public_of(keyring_of(number, profile).membership.link))


@dataclass
class AnonymousStream:
    """A stream from a caller, which knows the peer's name, to a callee, which does not know the caller."""

    caller: Address
    peer: Address
    callee: Address
    inbound: Address


@dataclass
class NodeHost:
    machine: Any = None
    disk: dict[int, bytes] = field(default_factory=dict)
    life: int = -1
    alarm: int | None = None


class TreeNetwork:
    """`heard` lists deliveries: (node, subscription, body), in order. Owners acknowledge at once."""

    def __init__(
        self,
        nodes: int = 8,
        *,
        profile: Profile = "hardened",
        config: TreeConfig = QUICK_CONFIG,
        listing: DirectoryConfig = DIRECTORY_CONFIG,
        latency_us: int = 20_000,
        seed: int = 1,
        directories: Mapping[int, type[Directory]] | int = 1,
    ) -> None:
        """`directories` is their number, or the class of each by its number from 0: liars are subclasses."""
        kinds = dict.fromkeys(range(directories), Directory) if isinstance(directories, int) else directories
        self.now, self._latency_us, self._seed, self.profile = START_US, latency_us, seed, profile
        self._config, self._listing = config, listing
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._outbound: dict[tuple[Address, Address], AnonymousStream] = {}
        self._inbound: dict[tuple[Address, Address], AnonymousStream] = {}
        self._names = 0
        self.heard: list[tuple[str, int, bytes]] = []
        self.events: list[tuple[str, Event]] = []
        self.seen: list[tuple[str, str, Message]] = []
        """Every message that arrived: recipient, the recipient's name for the sender, message."""
        self.rewrite: Callable[[str, Message], Message] = lambda source, message: message
        """Changes messages in transit; `source` is the recipient's name for the sender."""
        self.cut_off: set[Address] = set()
        """Nodes that can neither open nor accept streams; open streams stay."""
        self.places: dict[Address, NodeHost] = {}
        self.wants: dict[Address, list[Conjunction]] = {}
        self.names = [Address(f"n{number}:1") for number in range(nodes)]
        self.directories = {Address(f"directory:{number + 1}"): kind for number, kind in sorted(kinds.items())}
        for name in (*self.directories, *self.names):
            self.places[name] = NodeHost()
            self.wants[name] = []
            self.start(name)

    # --- what a test does

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND)
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heappop(self._queue)
            act()
        self.now = end

    def until(self, ready: Callable[[], bool], seconds: float) -> float:
        """Run until `ready` is true, and return the seconds it took. Fails after `seconds`."""
        start = self.now
        while not ready():
            assert self.now < start + seconds * SECOND, f"not so after {seconds} s"
            self.run(0.1)
        return (self.now - start) / SECOND

    def machine(self, name: str) -> Any:
        return self.places[Address(name)].machine

    def do(self, name: str, act: Callable[[Any, int], Any]) -> Any:
        result = act(self.machine(name), self.now)
        self._turn(Address(name))
        return result

    def subscribe(self, name: str, interest: Conjunction | None = None) -> int:
        wanted = interest or Label(TOPIC)
        self.wants[Address(name)].append(wanted)
        return int(self.do(name, lambda node, now: node.subscribe(wanted, now)))

    def publish(self, name: str, body: bytes, **pairs: Any) -> int:
        said: dict[str, Any] = {"level": 1, "kind": "red"} | pairs
        publication = Publication((Label(TOPIC).pair, *said.items()), body)
        return int(self.do(name, lambda node, now: node.publish(publication, now)))

    def heard_by(self, name: str) -> list[bytes]:
        return [body for node, _, body in self.heard if node == name]

    def called(self, node: bytes) -> str:
        """The address of the node with this name."""
        return next(name for name in self.names if name_of(self.names.index(name), self.profile) == node)

    def stands(self, name: str) -> bool:
        """True if the last subscription of this node has been reported as active."""
        told = [event for node, event in self.events if node == name and isinstance(event, Waiting)]
        return bool(told) and told[-1].until_us is not None

    def kill(self, name: str) -> None:
        address = Address(name)
        self.places[address].machine = None
        for stream in [each for each in self._outbound.values() if address in (each.caller, each.callee)]:
            self._break(stream)

    def start(self, name: str) -> None:
        address = Address(name)
        place = self.places[address]
        place.life += 1
        rng, entropy = (
            Random(f"{self._seed} {name} {place.life}"),
            SeededEntropy(derive_bytes(self._seed, name, str(place.life))),
        )
        if address in self.directories:
            others = tuple(each for each in self.directories if each != address)
            config = msgspec.structs.replace(self._listing, others=others)
            mine = keyring_of(-1 - list(self.directories).index(address), self.profile)
            place.machine = self.directories[address](config, mine, rng, self.now, dict(place.disk))
        else:
            mine, known = keyring_of(self.names.index(address), self.profile), tuple(self.directories)
            place.machine = TreeNode(self._config, mine, known, address, rng, entropy, self.now, dict(place.disk))
            for interest in self.wants[address]:
                place.machine.subscribe(interest, self.now)
        self._turn(address)

    def inject(self, name: str, message: bytes, source: str = "in:stranger") -> None:
        """Send bytes as an outsider."""
        self.do(name, lambda node, now: node.receive(message, Address(source), now))

    def resend(self, name: str, frames: Sequence[Frame]) -> None:
        """Send frames that a test took from a machine."""
        for frame in frames:
            self._send(Address(name), frame.destination, frame.data)
        self._turn(Address(name))

    # --- the network

    def _after(self, delay_us: int, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay_us, self._count, act))

    def _turn(self, name: Address) -> None:
        place = self.places[name]
        machine = place.machine
        if machine is None:
            return
        for frame in machine.frames_to_send(self.now, 1 << 20):
            self._send(name, frame.destination, frame.data)
        while (event := machine.next_event()) is not None:
            self._take(name, event)
        due = machine.next_timer()
        if due is not None and (place.alarm is None or due < place.alarm):
            place.alarm = due
            self._after(max(0, due - self.now), lambda: self._wake(name, machine, due))

    def _wake(self, name: Address, machine: Any, due: int) -> None:
        place = self.places[name]
        if place.alarm == due:
            place.alarm = None
        if place.machine is machine:
            machine.handle_timer(self.now)
            self._turn(name)

    def _take(self, name: Address, event: Event) -> None:
        self.events.append((name, event))
        place, machine = self.places[name], self.places[name].machine
        match event:
            case Connect():
                self._after(2 * self._latency_us, lambda: self._connect(name, machine, event.peer))
            case Disconnect():
                if (stream := self._outbound.get((name, event.peer))) is not None:
                    self._break(stream, told=False)
            case Record():
                self._after(1_000, lambda: self._write(place, machine, event, name))
            case Settled():
                place.disk.pop(event.record, None)
            case Delivered():
                self.heard.append((name, event.number, event.note.publication.body))
                machine.acknowledge(event.note.id, self.now)

    def _write(self, place: NodeHost, machine: Any, record: Record, name: Address) -> None:
        if place.machine is machine:
            place.disk[record.record] = record.data
            machine.stored(record.record, self.now)
            self._turn(name)

    def _connect(self, name: Address, machine: Any, peer: Address) -> None:
        if self.places[name].machine is not machine:
            return
        callee = Address(peer.partition("@")[2])
        target = self.places.get(callee)
        if target is None or target.machine is None or self.cut_off & {name, callee}:
            machine.peer_lost(peer, self.now)
        else:
            if (name, peer) not in self._outbound:
                self._names += 1
                stream = AnonymousStream(name, peer, callee, Address(f"in:{self._names}"))
                self._outbound[name, peer] = self._inbound[callee, stream.inbound] = stream
                target.machine.peer_up(stream.inbound, self.now)
            machine.peer_up(peer, self.now)
            self._turn(callee)
        self._turn(name)

    def _send(self, name: Address, peer: Address, data: bytes) -> None:
        out, back = self._outbound.get((name, peer)), self._inbound.get((name, peer))
        if out is not None:
            self._after(self._latency_us, lambda: self._arrive(out, out.callee, out.inbound, data))
        elif back is not None:
            self._after(self._latency_us, lambda: self._arrive(back, back.caller, back.peer, data))

    def _arrive(self, stream: AnonymousStream, name: Address, source: Address, data: bytes) -> None:
        machine = self.places[name].machine
        if machine is None or self._outbound.get((stream.caller, stream.peer)) is not stream:
            return
        message = self.rewrite(source, decode(data))
        self.seen.append((name, source, message))
        machine.receive(encode(message), source, self.now)
        self._turn(name)

    def _break(self, stream: AnonymousStream, *, told: bool = True) -> None:
        del self._outbound[stream.caller, stream.peer]
        del self._inbound[stream.callee, stream.inbound]
        ends = [(stream.callee, stream.inbound), *([(stream.caller, stream.peer)] if told else [])]
        for name, source in ends:
            machine = self.places[name].machine

            def tell(name: Address = name, source: Address = source, machine: Any = machine) -> None:
                if machine is not None and self.places[name].machine is machine:
                    machine.peer_lost(source, self.now)
                    self._turn(name)

            self._after(self._latency_us, tell)


def profile_of(network: TreeNetwork, name: str) -> Any:
    """The profile of a node."""
    return network.machine(name)._profile


_DIRECTORY_SEEDS: Final = 1 << 20

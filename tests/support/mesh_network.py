"""A single mesh node with scripted neighbours, and a small simulated network of mesh nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.machine import Address, Delivered, Event, Frame, Machine, Publication, Record, Settled
from veilcast.mesh.advertisements import make_advert
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.mesh.node import MeshNode
from veilcast.sim.checkers import Checker
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC, role_keyrings, topic_token
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Heartbeat

SMALL_CONFIG = MeshConfig(neighbours_max=20, address_bytes_max=8)
TOKEN = topic_token()
LABEL = Label(TOPIC)


def publication(body: bytes) -> Publication:
    return Publication((LABEL.pair,), body)


def advert(seed: int = 1) -> Advert:
    """An authentic advertisement with a fresh chain."""
    keys = role_keyrings()["publisher"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC)
    return make_advert(keys, Random(seed).randbytes)


class SingleNode:
    """One node. The test plays its neighbours. `records` is its disk, which stores at once."""

    def __init__(
        self,
        role: str,
        neighbours: str,
        config: MeshConfig = SMALL_CONFIG,
        keyring: Keyring | None = None,
        seed: int = 3,
        records: dict[int, bytes] | None = None,
    ) -> None:
        self.records, self._events = records if records is not None else {}, list[Event]()
        self.config, self.now = config, START_US
        self.names = [Address(name) for name in neighbours.split()]
        rng = Random(seed)
        self.node = MeshNode(
            config, keyring or role_keyrings()[role], rng, rng.randbytes, self.names, self.now, records=self.records
        )
        self._numbers = {name: 100 * place for place, name in enumerate(self.names)}
        for name in self.names:
            self.hear(name)
        self.next_riders()

    def hear(self, name: str, *messages: Message) -> None:
        """Deliver a neighbour's heartbeat with these messages."""
        source = Address(name)
        self._numbers[source] += 1
        self.feed(name, pad(encode(self.beat(self._numbers[source], *messages)), self.config.heartbeat_bytes))

    def beat(self, number: int, *messages: Message) -> Heartbeat:
        return Heartbeat(number, tuple(encode(message) for message in messages))

    def feed(self, name: str, data: bytes) -> None:
        self.node.receive(data, Address(name), self.now)

    def frames(self) -> list[Frame]:
        self._write()
        return self.node.frames_to_send(self.now, 1000)

    def events(self) -> list[Event]:
        """The events of the node since the last call, without those for its disk."""
        self._write()
        events, self._events = self._events, []
        return events

    def _write(self) -> None:
        while (event := self.node.next_event()) is not None:
            if isinstance(event, Record):
                self.records[event.record] = event.data
                self.node.stored(event.record, self.now)
            elif isinstance(event, Settled):
                del self.records[event.record]
            else:
                self._events.append(event)

    def tick(self) -> list[Frame]:
        """The frames of the node's next beat."""
        self.now = max(self.now, self.node.next_timer() or 0)
        self.node.handle_timer(self.now)
        return self.frames()

    def next_riders(self) -> dict[str, list[Message]]:
        """The messages in the node's next heartbeats, for the neighbours that get any."""
        said: dict[str, list[Message]] = {}
        for frame in self.tick():
            if frame.data[:1] == b"\0":
                riders = read_heartbeat(frame.data, self.config.heartbeat_bytes).riders
                if riders:
                    said[frame.destination] = [decode(rider) for rider in riders]
        return said

    def inward(self) -> list[Address]:
        return self.node.overlay.branches.inward(TOKEN)

    def outward(self) -> list[Address]:
        return self.node.overlay.branches.outward(TOKEN)


class MeshNetwork(Checker):
    """Nodes named by their edges, `p-f f-s`. A name with p publishes, one with s subscribes, and others forward."""

    def __init__(
        self,
        edges: str,
        *,
        seed: int = 1,
        config: MeshConfig = SMALL_CONFIG,
        links: LinkDelays | None = None,
        checkers: Sequence[Checker] = (),
        rings: dict[str, Keyring] | None = None,
        disguises: dict[str, Callable[[MeshNode], Machine]] | None = None,
    ) -> None:
        self._rings, self._disguises = rings or role_keyrings(), disguises or {}
        self.world = World(seed=seed, links=links or LinkDelays(latency_us=(10_000, 50_000)))
        self.notes: dict[str, list[bytes]] = {}
        for checker in (self, *checkers):
            self.world.watch(checker)
        pairs = [tuple(edge.split("-")) for edge in edges.split()]
        self.neighbours: dict[str, list[Address]] = {}
        for u, v in pairs:
            self.neighbours.setdefault(u, []).append(Address(v))
            self.neighbours.setdefault(v, []).append(Address(u))
        for name in self.neighbours:
            self._add(name, config)
        for u, v in pairs:
            self.world.connect(Address(u), Address(v))

    def _add(self, name: str, config: MeshConfig) -> None:
        role = {"p": "publisher", "s": "subscriber"}.get(name[0], "forwarder")

        def start(birth: Birth) -> Machine:
            rng, now = Random(f"{name} {self.world.seed} {self.world.incarnation(Address(name))}"), self.world.now
            keyring, around = self.keyring(name, role), self.neighbours[name]
            node = MeshNode(config, keyring, rng, rng.randbytes, around, now, records=birth.stored)
            if role == "publisher":
                node.advertise(TOPIC, now)
            elif role == "subscriber":
                node.subscribe(LABEL, now)
            return self._disguises[name](node) if name in self._disguises else node

        self.world.add(Address(name), start)

    def keyring(self, name: str, role: str) -> Keyring:
        return self._rings[role]

    def token(self) -> bytes:
        return TOKEN

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            self.notes.setdefault(address, []).append(event.note.publication.body)
            world.call(address, lambda machine, now: machine.acknowledge(event.note.id, now))

    def run(self, periods: float) -> MeshNetwork:
        self.world.run(int(periods * SMALL_CONFIG.heartbeat_us))
        return self

    def publish(self, body: bytes, by: str = "p", wait: float = 2) -> None:
        self.world.call(Address(by), lambda machine, now: machine.publish(publication(body), now))
        self.run(wait)

    def node(self, name: str) -> MeshNode:
        node = unwrap(self.world.machine(Address(name)))
        assert isinstance(node, MeshNode)
        return node

    def delivered(self, name: str) -> list[bytes]:
        return self.notes.get(name, [])

    def inward(self, name: str) -> list[Address]:
        return self.node(name).overlay.branches.inward(self.token())

    def outward(self, name: str) -> list[Address]:
        return sorted(self.node(name).overlay.branches.outward(self.token()))

    def members(self) -> list[str]:
        """The members of the mesh: the publishers, and all nodes that have asked for the topic."""
        present = [name for name in self.neighbours if self.world.machine(Address(name)) is not None]
        return sorted(name for name in present if name[0] == "p" or self.inward(name))

    def sent(self, kind: str) -> int:
        return sum(self.node(name).sent[kind] for name in self.neighbours)

"""Flooding: the smallest machine worth simulating, and the one to learn the contract from; with its population.

A message is an id of 16 bytes and a body. On first receipt a node delivers it and forwards it to every peer except its
sender; later copies are dropped. Flooding hides nothing: it is here to teach, to test the engine and to measure it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication
from veilcast.sim.checkers import AtMostOnce, Bounded, Checker, Everyone, Intact
from veilcast.sim.graphs import check_small_world, watts_strogatz
from veilcast.sim.rng import derive_bytes, derive_rng
from veilcast.sim.world import World


class FloodNode:
    """A node that knows the peers which the driver reports. It remembers the last `memory` ids."""

    __slots__ = ("_events", "_frames", "_memory", "_peers", "_seen", "version")

    def __init__(self, memory: int = 1024) -> None:
        if memory < 1:
            raise LocalError("a flood node must remember at least one id")
        self._memory = memory
        self._seen: dict[bytes, None] = {}  # In order of first receipt, so that the oldest is the first.
        self._peers: list[Address] = []
        self._frames: list[Frame] = []
        self._events: list[Event] = []
        self.version = 0

    def publish(self, message: bytes, body: bytes) -> None:
        """Send a body to all nodes, under an id that was never used before."""
        if len(message) != ID_SIZE:
            raise LocalError(f"an id has {ID_SIZE} bytes")
        self.receive(message + body, _OWNER, 0)

    @property
    def remembered(self) -> int:
        return len(self._seen)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        message = data[:ID_SIZE]
        if message in self._seen or len(message) < ID_SIZE:
            return
        if len(self._seen) >= self._memory:
            del self._seen[next(iter(self._seen))]
        self._seen[message] = None
        self.version += 1
        self._frames += [Frame(peer, data) for peer in self._peers if peer != source]
        self._events.append(Delivered(0, Note(message, Publication((), data[ID_SIZE:]))))

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._frames
        if not frames:
            return []
        self._frames = frames[limit:]
        return frames[:limit] if self._frames else frames

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        if peer not in self._peers:
            self._peers.append(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._peers:
            self._peers.remove(peer)


class FloodPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="flood"):
    """Flood nodes on a small-world graph, where a random node publishes every `every_us`."""

    nodes: int = 50
    neighbours: int = 4
    rewire: float = 0.1
    memory: int = 1024
    """Ids that a node remembers. With fewer than are in flight at once, messages circulate for ever."""
    messages: int = 20
    every_us: int = 100_000
    body_size: int = 64
    checks: tuple[str, ...] = ("once", "intact", "memory")

    def __post_init__(self) -> None:
        check_small_world(self.nodes, self.neighbours, self.rewire)
        for name in ("memory", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("messages", "body_size"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")

    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{i}") for i in range(self.nodes))

    def populate(self, world: World, duration_us: int) -> None:
        sent: dict[bytes, Publication] = {}
        addresses = self.addresses()
        for check in self.checks:
            world.watch(self._checker(check, sent))
        for address in addresses:
            world.add(address, lambda birth: FloodNode(self.memory))
            world.label(_TOPIC, address, "subscriber", world.start, world.start + duration_us)
        graph = watts_strogatz(self.nodes, self.neighbours, self.rewire, derive_rng(world.seed, "graph"))
        for u, v in graph:
            world.connect(addresses[u], addresses[v])
        rng = derive_rng(world.seed, "workload")
        for number in range(self.messages):
            self._plan_message(world, rng.choice(addresses), number, sent)

    def facts(self, world: World) -> dict[str, int]:
        """Nothing beyond the world's own counts."""
        return {}

    def _plan_message(self, world: World, publisher: Address, number: int, sent: dict[bytes, Publication]) -> None:
        message = derive_bytes(world.seed, "message", str(number))[:ID_SIZE]
        body = (b"%d " % number * self.body_size)[: self.body_size]

        def publish(machine: FloodNode, now: int) -> None:
            sent[message] = Publication((), body)
            world.label(_TOPIC, publisher, "publisher", world.now, world.now)
            machine.publish(message, body)

        world.after(number * self.every_us, lambda: world.call(publisher, publish))

    def _checker(self, check: str, sent: dict[bytes, Publication]) -> Checker:
        match check:
            case "once":
                return AtMostOnce()
            case "intact":
                return Intact(sent)
            case "everyone":
                return Everyone(sent, self.addresses())
            case _:
                return Bounded("ids", self.memory, lambda machine: machine.remembered)


ID_SIZE: Final = 16
_OWNER: Final = Address("")
"""The source of the owner's publications: no peer has this address, so they go to every peer."""
_CHECKS: Final = ("once", "intact", "everyone", "memory")
_TOPIC: Final = "flood"

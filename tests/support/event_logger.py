"""A machine that logs all that happens to it, and a world of two of these."""

from __future__ import annotations

from support.frame_adversaries import ScriptedPeer
from veilcast.machine import Address, Event, Frame, Record
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import World


class EventLogger(ScriptedPeer):
    """A scripted peer that also emits given events, logs notices, and sets one timer."""

    def __init__(self, stored: dict[int, bytes] | None = None) -> None:
        super().__init__()
        self.restored = stored or {}
        self.outbox: list[Frame] = []
        self.asks: list[Event] = []
        self.notices: list[tuple[str, object, int]] = []
        self.deadline: int | None = None
        self.fired: list[int] = []

    def send(self, peer: Address, data: bytes) -> None:
        self.outbox.append(Frame(peer, data))

    def handle_timer(self, now: int) -> None:
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None
            self.fired.append(now)

    def next_timer(self) -> int | None:
        return self.deadline

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self.outbox = self.outbox[:limit], self.outbox[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self.asks.pop(0) if self.asks else None

    def peer_up(self, peer: Address, now: int) -> None:
        self.notices.append(("up", peer, now))

    def peer_lost(self, peer: Address, now: int) -> None:
        self.notices.append(("lost", peer, now))

    def stored(self, record: int, now: int) -> None:
        self.notices.append(("stored", record, now))

    def record(self, number: int, data: bytes) -> None:
        self.asks.append(Record(number, data))


class LoggerPair:
    """Event loggers at a and b, one millisecond apart; times count from the world's start."""

    a, b = Address("a"), Address("b")

    def __init__(self) -> None:
        self.world = World(seed=7, links=LinkDelays(latency_us=(1_000,)))
        for address in (self.a, self.b):
            self.world.add(address, lambda birth: EventLogger(birth.stored))
        self.world.run(0)

    def send(self, data: bytes, *, back: bool = False) -> None:
        source, target = (self.b, self.a) if back else (self.a, self.b)
        self.world.call(source, lambda machine, now: machine.send(target, data))

    def ask(self, address: Address, event: Event) -> None:
        self.world.call(address, lambda machine, now: machine.asks.append(event))

    def heard(self, address: Address) -> list[tuple[str, object]]:
        """The notices that a machine has received since the last call."""
        notices = [(notice, about) for notice, about, _ in self.at(address).notices]
        self.at(address).notices.clear()
        return notices

    def at(self, address: Address) -> EventLogger:
        machine = self.world.machine(address)
        assert isinstance(machine, EventLogger)
        return machine

    def got(self, *, back: bool = False) -> list[tuple[int, bytes]]:
        machine = self.at(self.a if back else self.b)
        return [(now - self.world.start, data) for now, _, data in machine.received]

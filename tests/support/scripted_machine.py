"""A machine for the tests of drivers that does only what a test scripts."""

from __future__ import annotations

from collections.abc import Callable

from veilcast.machine import Address, Event, Frame


class ScriptedMachine:
    """Returns the frames and events that a test gives it, and records its calls."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.events: list[Event] = []
        self.due: int | None = None
        self.calls: list[tuple[str, int]] = []
        self.got: list[tuple[Address, bytes]] = []
        self.peers: list[tuple[str, Address]] = []
        self.on_timer: Callable[[int], None] = lambda now: setattr(self, "due", None)
        self.on_receive: Callable[[bytes], None] = lambda data: None

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.calls.append(("receive", now))
        self.got.append((source, data))
        self.on_receive(data)

    def handle_timer(self, now: int) -> None:
        self.calls.append(("timer", now))
        self.on_timer(now)

    def next_timer(self) -> int | None:
        return self.due

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        taken, self.frames = self.frames[:limit], self.frames[limit:]
        return taken

    def next_event(self) -> Event | None:
        return self.events.pop(0) if self.events else None

    def peer_up(self, peer: Address, now: int) -> None:
        self.peers.append(("up", peer))

    def peer_lost(self, peer: Address, now: int) -> None:
        self.peers.append(("lost", peer))

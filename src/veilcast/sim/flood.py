"""Flooding: the smallest machine that is worth simulating, and the one to learn the contract from.

A message is an id of 16 bytes and a body. On first receipt a node delivers it and sends it on to every peer
but the one it came from; later copies are dropped. It hides nothing: it is here to teach, to test the engine
and to measure it.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import LocalError
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication


class FloodNode:
    """A node whose peers are those it was told of. It remembers the last `memory` ids."""

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
        """Send a body to all, under an id that was never used before."""
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


ID_SIZE: Final = 16
_OWNER: Final = Address("")
"""The source of what the owner publishes: no peer's address, so it goes to every peer."""

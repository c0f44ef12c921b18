"""Traffic attacks: tagging, replay, and silence.

*Tagging.* A tag is a change that another insider recognises. Notes are sealed and signed, so a node that verifies drops
a changed note, and the only mark left is that the note is missing.

*Replay.* Another insider recognises the same note. A node that forwards a note for a second time shows all nodes below
it that a path leads there. A node that drops known notes shows nothing.

*Silence, to force re-parenting.* A node subscribes at one neighbour at a time, so a coalition sees of each node only
the subscriptions at its own members. If a parent falls silent, its children choose again, perhaps an insider, and every
choice is another test of who wants the topic. Insiders take turns: while some are silent, the others listen.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address, Frame, Machine
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify, Subscribe


class IntermittentInsider(ActiveInsider):
    """Silent in every other turn of `turn_us` from `start_us` on, in odd turns if `odd`. A turn of 0 means never."""

    def __init__(self, inner: Machine, start_us: int, turn_us: int, *, odd: bool) -> None:
        super().__init__(inner)
        self._start_us, self._turn_us, self._odd = start_us, turn_us, odd
        self.requesters: set[Address] = set()
        """Neighbours that subscribed to the topic. The number of times says little: a child subscribes again after each
        silence."""

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Subscribe):
            self.requesters.add(source)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = super().frames_to_send(now, limit)
        if not self._turn_us or now < self._start_us or (now - self._start_us) // self._turn_us % 2 != self._odd:
            return frames
        return []


class TaggingInsider(ActiveInsider):
    """Flips a bit in every note that it forwards."""

    def __init__(self, inner: Machine, rng: Random) -> None:
        super().__init__(inner)
        self._rng = rng
        self.tagged = 0

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if not isinstance(message, Notify):
            return message
        self.tagged += 1
        sealed = bytearray(message.sealed)
        sealed[self._rng.randrange(len(sealed))] ^= 1 << self._rng.randrange(8)
        return msgspec.structs.replace(message, sealed=bytes(sealed))


class ReplayingInsider(ActiveInsider):
    """Sends every note again, `later_us` after it was sent."""

    def __init__(self, inner: Machine, later_us: int) -> None:
        super().__init__(inner)
        self._later_us = later_us
        self._waiting: deque[tuple[int, Message, Address]] = deque(maxlen=_MEMORY)
        self.replayed = 0

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, Notify):
            self._waiting.append((now + self._later_us, message, destination))
        return message

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        while self._waiting and self._waiting[0][0] <= now:
            _, message, destination = self._waiting.popleft()
            self.replayed += 1
            self.send(message, destination)


_MEMORY: Final = 4096
"""Most notes that wait to be sent again."""

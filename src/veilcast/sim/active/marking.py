"""Tagging and replay: mark what passes, or send it again, and look for an effect further down.

A *tag* is a change that a friend would know again. Notes are sealed and signed, so whoever checks drops a changed one,
and the only mark that is left is that it is missing. A *replay* is known again because it is the same: a node that
passes on a note for a second time shows all below it that a way leads from here to there; one that drops what it has
seen shows nothing.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address, Machine
from veilcast.sim.active.mouth import Mouth
from veilcast.wire.messages import Message, Notify


class Tagger(Mouth):
    """Flips a bit in every note that it passes on."""

    def __init__(self, inner: Machine, rng: Random) -> None:
        super().__init__(inner)
        self._rng = rng
        self.tagged = 0

    def word(self, message: Message, destination: Address, now: int) -> Message | None:
        if not isinstance(message, Notify):
            return message
        self.tagged += 1
        sealed = bytearray(message.sealed)
        sealed[self._rng.randrange(len(sealed))] ^= 1 << self._rng.randrange(8)
        return msgspec.structs.replace(message, sealed=bytes(sealed))


class Echo(Mouth):
    """Sends every note again, `later_us` after it was sent, and is silent about it."""

    def __init__(self, inner: Machine, later_us: int) -> None:
        super().__init__(inner)
        self._later_us = later_us
        self._waiting: deque[tuple[int, Message, Address]] = deque(maxlen=_MEMORY)
        self.echoed = 0

    def word(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, Notify):
            self._waiting.append((now + self._later_us, message, destination))
        return message

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        while self._waiting and self._waiting[0][0] <= now:
            _, message, destination = self._waiting.popleft()
            self.echoed += 1
            self.send(message, destination)


_MEMORY: Final = 4096
"""Notes that wait to be sent again."""

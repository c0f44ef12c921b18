"""Drop to force re-parenting: a parent that falls silent makes its children ask somebody else, perhaps one of us.

A node asks one neighbour at a time, so a coalition sees of each only what it asks of them. Whoever goes away at will
makes others choose again, and every choice is another test of who wants the topic. Members of the coalition take turns:
while some are silent, the others listen.
"""

from __future__ import annotations

from veilcast.machine import Address, Frame, Machine
from veilcast.sim.active.mouth import Mouth
from veilcast.wire.messages import Message, Subscribe


class Quitter(Mouth):
    """Silent in every other turn of `turn_us`, from `start_us` on; `odd` says in which. A turn of 0 is never."""

    def __init__(self, inner: Machine, start_us: int, turn_us: int, *, odd: bool) -> None:
        super().__init__(inner)
        self._start_us, self._turn_us, self._odd = start_us, turn_us, odd
        self.asked: set[Address] = set()
        """Neighbours that asked for the topic. How often says little: a child asks again when we are back."""

    def hear(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Subscribe):
            self.asked.add(source)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = super().frames_to_send(now, limit)
        if not self._turn_us or now < self._start_us or (now - self._start_us) // self._turn_us % 2 != self._odd:
            return frames
        return []

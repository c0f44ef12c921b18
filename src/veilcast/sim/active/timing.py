"""Subscribe and time: ask a neighbour for the topic, and see how soon the next note comes.

One that is in the mesh has notes already and passes on the very next. One that is not must first ask its own parent,
and that one perhaps another: a heartbeat for each hop. So the time from the question to the first note tells who is in
the mesh, without any mistake of the papers' protocol being needed. Readers always are; how much it tells about them
depends on how many others are, too.

The prober asks all its neighbours, one after the other, leaves each when it has its answer, and leaves alone those
who ask it: they are in the mesh for certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.machine import Address, Machine
from veilcast.sim.active.mouth import Mouth
from veilcast.wire.messages import Message, Notify, Subscribe, Unsubscribe


class Prober(Mouth):
    """Begins when a note was due for the first time, at `start_us`."""

    def __init__(self, inner: Machine, neighbours: Sequence[Address], start_us: int) -> None:
        super().__init__(inner)
        self._left = list(neighbours)
        self._start_us = start_us
        self._asked: tuple[Address, int] | None = None
        self.delay_us: dict[Address, int] = {}
        """Of those that were asked, how long the first note took."""

    def hear(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Subscribe):
            self.delay_us[source] = 0
        elif isinstance(message, Notify) and self._asked is not None and source == self._asked[0]:
            self._answered(now)

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        if now < self._start_us or not self.token:
            return
        if self._asked is not None and now - self._asked[1] > PATIENCE_US:
            self._answered(now)
        while self._asked is None and self._left:
            peer = self._left.pop()
            if peer not in self.delay_us:
                self._asked = peer, now
                self.say(Subscribe(self.token), peer)

    def _answered(self, now: int) -> None:
        assert self._asked is not None
        peer, since_us = self._asked
        self.delay_us.setdefault(peer, now - since_us)
        self.say(Unsubscribe(self.token), peer)
        self._asked = None


PATIENCE_US: Final = 20_000_000
"""Who has not answered by then is not going to."""

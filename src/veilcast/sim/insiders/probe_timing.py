"""Subscribe and time: ask a neighbour for the topic, and see how soon the next note comes.

One that is in the mesh has notes already and passes on the very next. One that is not must first ask its own parent,
and that one perhaps another: a heartbeat for each hop. So the time from the question to the first note tells who is in
the mesh, without any mistake of the papers' protocol being needed. Readers always are; how much it tells about them
depends on how many others are, too.

To ask is to bring others into the mesh: whoever was asked, and those on its way. So a coalition asks one node at a
time, each once, leaves it when it has its answer, and rests until the mesh is as it was. Those who ask one of us are in
the mesh for certain, and need not be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from veilcast.machine import Address, Machine
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.mesh import Message, Notify, Subscribe, Unsubscribe


class ProbeSchedule:
    """Whose turn it is to ask whom, from `start_us` on, when notes are about."""

    def __init__(self, asked_by: Mapping[Address, Address], start_us: int) -> None:
        self._left = list(asked_by.items())
        self._rest_us = start_us
        self._asked: tuple[Address, Address, int] | None = None
        self.delay_us: dict[Address, int] = {}
        """Of those that were asked, or that asked, how long the first note took."""

    def next_target(self, prober: Address, now: int) -> Address | None:
        """Whom this one is to ask now, if anybody."""
        while self._left and self._left[-1][0] in self.delay_us:
            self._left.pop()
        if self._asked is not None or now < self._rest_us or not self._left or self._left[-1][1] != prober:
            return None
        peer, _ = self._left.pop()
        self._asked = peer, prober, now
        return peer

    def record_request(self, peer: Address) -> None:
        """This one has asked one of us."""
        self.delay_us.setdefault(peer, 0)

    def record_answer(self, peer: Address, prober: Address, now: int) -> bool:
        """A note has come from one to the other; whether it was waited for."""
        if self._asked is None or self._asked[:2] != (peer, prober):
            return False
        self._note(now)
        return True

    def take_overdue(self, prober: Address, now: int) -> Address | None:
        """Whom this one has asked in vain."""
        if self._asked is None or self._asked[1] != prober or now - self._asked[2] <= ANSWER_TIMEOUT_US:
            return None
        return self._note(now)

    def _note(self, now: int) -> Address:
        assert self._asked is not None
        peer, _, since_us = self._asked
        self.delay_us.setdefault(peer, now - since_us)
        self._asked, self._rest_us = None, now + REST_US
        return peer


class ProbingInsider(ActiveInsider):
    """One of those who ask."""

    def __init__(self, inner: Machine, address: Address, survey: ProbeSchedule) -> None:
        super().__init__(inner)
        self._address, self._survey = address, survey

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Subscribe):
            self._survey.record_request(source)
        elif isinstance(message, Notify) and self._survey.record_answer(source, self._address, now):
            self.add_to_heartbeat(Unsubscribe(self.token), source)

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        if (late := self._survey.take_overdue(self._address, now)) is not None:
            self.add_to_heartbeat(Unsubscribe(self.token), late)
        if self.token and (peer := self._survey.next_target(self._address, now)) is not None:
            self.add_to_heartbeat(Subscribe(self.token), peer)


ANSWER_TIMEOUT_US: Final = 12_000_000
"""Who has not answered by then is not going to."""
REST_US: Final = 4_000_000
"""In which those leave who were asked for our sake."""

"""Probe timing: subscribe at a neighbour, and measure how soon the next note comes.

A node in the mesh already receives notes and forwards the next one. A node outside must first subscribe at its own
parent, and that one perhaps at another: one heartbeat for each hop. So the time until the first note reveals which
nodes are in the mesh, without any flaw of the papers' protocol. Subscribers are always in the mesh. How much the timing
tells about them depends on how many other nodes are in it, too.

A probe brings other nodes into the mesh: the probed node, and those on its path. So the coalition probes one node at a
time and each once, unsubscribes after the answer, and waits until the mesh is as before. A node that subscribes at an
insider is in the mesh for certain, and is not probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from veilcast.machine import Address, Machine
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify, Subscribe, Unsubscribe


class ProbeSchedule:
    """Decides which insider probes which node next, from `start_us` on, when notes are being published."""

    def __init__(self, asked_by: Mapping[Address, Address], start_us: int) -> None:
        self._left = list(asked_by.items())
        self._rest_us = start_us
        self._asked: tuple[Address, Address, int] | None = None
        self.delay_us: dict[Address, int] = {}
        """For each node that was probed or subscribed by itself: microseconds until its first note."""

    def next_target(self, prober: Address, now: int) -> Address | None:
        """The node that this insider probes now, or None."""
        while self._left and self._left[-1][0] in self.delay_us:
            self._left.pop()
        if self._asked is not None or now < self._rest_us or not self._left or self._left[-1][1] != prober:
            return None
        peer, _ = self._left.pop()
        self._asked = peer, prober, now
        return peer

    def record_request(self, peer: Address) -> None:
        """This node has subscribed at an insider."""
        self.delay_us.setdefault(peer, 0)

    def record_answer(self, peer: Address, prober: Address, now: int) -> bool:
        """A note has come from the peer. Returns True if the prober was waiting for it."""
        if self._asked is None or self._asked[:2] != (peer, prober):
            return False
        self._note(now)
        return True

    def take_overdue(self, prober: Address, now: int) -> Address | None:
        """The node that this insider has probed in vain, or None."""
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
    """One of the insiders that probe."""

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
"""A node that has not answered by then will not answer."""
REST_US: Final = 4_000_000
"""Time in which nodes that joined because of a probe leave the mesh again."""

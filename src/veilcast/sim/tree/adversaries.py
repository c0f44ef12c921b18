"""Adversaries of the tree."""

from __future__ import annotations

from random import Random

from veilcast.errors import MalformedError
from veilcast.machine import Address, Frame, Machine
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode
from veilcast.wire.tree import ForwardPublication, Offer, RequestAck


class HoardingNode(MachineWrapper):
    """A node that acknowledges publications which it should forward, and keeps a share of them. It does all else
    correctly."""

    def __init__(self, inner: Machine, rng: Random, keep_ppm: int = 1_000_000) -> None:
        super().__init__(inner)
        self._rng, self._keep_ppm = rng, keep_ppm
        self._answers: list[Frame] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            message = decode(data)
        except MalformedError:
            message = None
        if isinstance(message, ForwardPublication | Offer) and self._rng.randrange(1_000_000) < self._keep_ppm:
            self._answers.append(Frame(source, encode(RequestAck(message.number))))
        else:
            super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._answers += self._frames_of_inner(now, limit)
        frames, self._answers = self._answers[:limit], self._answers[limit:]
        return frames

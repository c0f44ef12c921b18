"""Calling: asks for a stream to one peer until there is one, and again when it is lost, with growing pauses between.

A driver may well repeat a call by itself; to ask for what is under way does no harm.
"""

from __future__ import annotations

from random import Random
from typing import Final

from veilcast.machine import Address, Connect


class Caller:
    """For one peer."""

    def __init__(self, peer: Address, base_us: int, rng: Random, now: int) -> None:
        self._peer, self._base_us, self._rng = peer, base_us, rng
        self._calls = 0
        self.up = False
        self.next_us: int | None = now
        self._event: Connect | None = None
        self.handle(now)

    def peer_up(self) -> None:
        self.up, self._calls, self.next_us = True, 0, None

    def peer_lost(self, now: int) -> None:
        self.up = False
        self.next_us = now + backoff(self._rng, self._base_us, self._calls)

    def handle(self, now: int) -> None:
        if self.next_us is None or now < self.next_us:
            return
        self._event = Connect(self._peer)
        self._calls += 1
        self.next_us = now + backoff(self._rng, self._base_us, self._calls)

    def next_event(self) -> Connect | None:
        event, self._event = self._event, None
        return event


def backoff(rng: Random, base_us: int, tries: int) -> int:
    """Twice as long with every try, up to sixteen times, and never two machines alike."""
    most = base_us << min(tries, DOUBLINGS)
    return most // 2 + rng.randrange(most // 2 + 1)


DOUBLINGS: Final = 4

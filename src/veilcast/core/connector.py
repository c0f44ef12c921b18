"""Calling: asks for a stream to one peer until there is one, and again when it is lost, with growing pauses between.

A driver may well repeat a call by itself; to ask for what is under way does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from veilcast.core.timers import earliest
from veilcast.machine import Address, Connect


class Connector:
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


class Connectors:
    """For many peers, most of which are up. They are gone through only when one of them has something to do."""

    def __init__(self, base_us: int, rng: Random) -> None:
        self._base_us, self._rng = base_us, rng
        self._callers: dict[Address, Connector] = {}
        self._calling = False
        self.next_us: int | None = None

    def __contains__(self, peer: Address) -> bool:
        return peer in self._callers

    def __iter__(self) -> Iterator[Address]:
        return iter(self._callers)

    def add(self, peer: Address, now: int) -> None:
        if peer not in self._callers:
            self._callers[peer] = Connector(peer, self._base_us, self._rng, now)
            self._moved()

    def drop(self, peer: Address) -> None:
        if self._callers.pop(peer, None) is not None:
            self._moved()

    def peer_up(self, peer: Address) -> None:
        self._callers[peer].peer_up()
        self._moved()

    def peer_lost(self, peer: Address, now: int) -> None:
        self._callers[peer].peer_lost(now)
        self._moved()

    def handle(self, now: int) -> None:
        if self.next_us is not None and self.next_us <= now:
            for caller in self._callers.values():
                caller.handle(now)
            self._moved()

    def next_event(self) -> Connect | None:
        for caller in self._callers.values() if self._calling else ():
            if (event := caller.next_event()) is not None:
                return event
        self._calling = False
        return None

    def _moved(self) -> None:
        self._calling = True
        self.next_us = earliest(*[caller.next_us for caller in self._callers.values()])


def backoff(rng: Random, base_us: int, tries: int) -> int:
    """Twice as long with every try, up to sixteen times, and never two machines alike."""
    most = base_us << min(tries, DOUBLINGS_MAX)
    return most // 2 + rng.randrange(most // 2 + 1)


DOUBLINGS_MAX: Final = 4

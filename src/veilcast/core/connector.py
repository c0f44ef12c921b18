"""Connectors: ask the driver for a stream to a peer until there is one, and again when it is lost.

The pauses between two requests grow. A driver may repeat a request by itself; to ask for a stream that is being opened
does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from veilcast.core.timers import earliest
from veilcast.machine import Address, Connect


class Connector:
    """Keeps a stream to one peer."""

    def __init__(self, peer: Address, base_us: int, rng: Random, now: int) -> None:
        self._peer, self._base_us, self._rng = peer, base_us, rng
        self._calls = 0
        """Requests since the stream was last up."""
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
        """Ask for the stream, if it is time to."""
        if self.next_us is None or now < self.next_us:
            return
        self._event = Connect(self._peer)
        self._calls += 1
        self.next_us = now + backoff(self._rng, self._base_us, self._calls)

    def next_event(self) -> Connect | None:
        event, self._event = self._event, None
        return event


class Connectors:
    """Keeps streams to many peers, most of which are up. It visits them only when one of them has something to do."""

    def __init__(self, base_us: int, rng: Random) -> None:
        self._base_us, self._rng = base_us, rng
        self._connectors: dict[Address, Connector] = {}
        self._has_events = False
        """False only if no connector has an event."""
        self.next_us: int | None = None

    def __contains__(self, peer: Address) -> bool:
        return peer in self._connectors

    def __iter__(self) -> Iterator[Address]:
        return iter(self._connectors)

    def add(self, peer: Address, now: int) -> None:
        if peer not in self._connectors:
            self._connectors[peer] = Connector(peer, self._base_us, self._rng, now)
            self._update()

    def drop(self, peer: Address) -> None:
        if self._connectors.pop(peer, None) is not None:
            self._update()

    @property
    def up(self) -> list[Address]:
        """The peers that are connected."""
        return [peer for peer, connector in self._connectors.items() if connector.up]

    def peer_up(self, peer: Address) -> None:
        self._connectors[peer].peer_up()
        self._update()

    def peer_lost(self, peer: Address, now: int) -> None:
        self._connectors[peer].peer_lost(now)
        self._update()

    def handle(self, now: int) -> None:
        if self.next_us is not None and self.next_us <= now:
            for connector in self._connectors.values():
                connector.handle(now)
            self._update()

    def next_event(self) -> Connect | None:
        for connector in self._connectors.values() if self._has_events else ():
            if (event := connector.next_event()) is not None:
                return event
        self._has_events = False
        return None

    def _update(self) -> None:
        self._has_events = True
        self.next_us = earliest(*[connector.next_us for connector in self._connectors.values()])


def backoff(rng: Random, base_us: int, tries: int) -> int:
    """A random pause before the next try, in microseconds.

    The longest pause doubles with every try, up to sixteen times `base_us`; the shortest is half of the longest. The
    random half keeps machines that failed together from trying again together.
    """
    most = base_us << min(tries, DOUBLINGS_MAX)
    return most // 2 + rng.randrange(most // 2 + 1)


DOUBLINGS_MAX: Final = 4

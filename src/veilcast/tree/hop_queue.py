"""Hops: what a node has to hand on to others, until they have it or its time is over.

A message goes to a node of the listing, on the one stream there is to it for all that climbs. Who refuses it for now is
asked again later: it may just have started anew, and be told its instructions again. Who is listed no more may be
listed again. What could not be handed on in time, or finds no room, is dropped, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import msgspec

from veilcast.core.connector import backoff
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers
from veilcast.errors import ExcessError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.tree.config import TreeConfig
from veilcast.tree.streams import HOP_STREAM, PAUSE_DOUBLINGS_MAX, Answer, RequestStreams
from veilcast.wire.tree import ForwardPublication, Install, Offer, RefusalCode, RequestRefused

FindAddress: TypeAlias = Callable[[bytes], Address | None]
"""The address of another node, if it is listed."""

ForwardToSelf: TypeAlias = Callable[[ForwardPublication, int], None]
"""Takes what a node has to hand on to itself; raises `RemoteError`."""


class HopQueue:
    """Bounded: `holds_max` messages, of which `holds_each` for one node, and few for all who are not listed.

    Whoever could fill the room with what is for nobody would shut everybody out.
    """

    def __init__(
        self,
        config: TreeConfig,
        streams: RequestStreams,
        home: bytes,
        where: FindAddress,
        keep: ForwardToSelf,
        rng: Random,
    ) -> None:
        self._config, self._streams, self._home, self._where = config, streams, home, where
        self._keep, self._rng = keep, rng
        self._held: Counter[bytes] = Counter()
        self._under: dict[bytes, dict[_Hold, None]] = {}
        """What waits under each entry of our table."""
        self._again: Timers[_Hold] = Timers()
        self.dropped = 0

    def __len__(self) -> int:
        return self._held.total()

    @property
    def longest_queue(self) -> int:
        """How many wait for the node for whom most do."""
        return max(self._held.values(), default=0)

    def has_room(self, node: bytes) -> bool:
        most = self._config.holds_max
        if self._where(node) is None and node != self._home:
            most //= UNLISTED_SHARE
        return len(self) < most and self._held[node] < self._config.holds_each

    def send(
        self, node: bytes, message: ForwardPublication | Install | Offer, now: int, *, entry: bytes | None = None
    ) -> None:
        """Hand this on, which came in under that entry; it is dropped if too much waits already."""
        if not self.has_room(node):
            self.dropped += 1
            return
        self._held[node] += 1
        hold = _Hold(node, message, now + self._config.hold_us, entry)
        if entry is not None:
            self._under.setdefault(entry, {})[hold] = None
        if node == self._home:
            self._again.set(
                hold, now
            )  # Not at once: whoever is its own parent a thousand times takes a thousand turns.
        else:
            self._try(hold, now)

    def waiting_under(self, entry: bytes, besides: bytes) -> list[ForwardPublication]:
        """What came in under this entry and waits for other nodes but not for this one; each message once.

        Each message once: an installer that turns an entry again and again would else double what waits at each turn.
        """
        held = [
            (hold.node, hold.message)
            for hold in self._under.get(entry, ())
            if isinstance(hold.message, ForwardPublication)
        ]
        there = {carry.message for node, carry in held if node == besides}
        return list({carry.message: carry for _, carry in held if carry.message not in there}.values())

    def next_us(self) -> int | None:
        return self._again.next_us()

    def handle(self, now: int) -> None:
        for hold in self._again.pop_due(now):
            self._try(hold, now)

    def _try(self, hold: _Hold, now: int) -> None:
        address = self._where(hold.node)
        if now >= hold.until_us:
            self._end(hold, dropped=True)
        elif hold.node == self._home:
            self._take(hold, now)
        elif address is None or not self._ask(hold, address, now):
            self._later(hold, now)

    def _take(self, hold: _Hold, now: int) -> None:
        try:
            if isinstance(hold.message, ForwardPublication):
                self._keep(hold.message, now)
        except (StaleError, ExcessError):
            self._later(hold, now)
        except RemoteError:
            self._end(hold, dropped=True)
        else:
            self._end(hold, dropped=False)

    def _ask(self, hold: _Hold, address: Address, now: int) -> bool:
        def build(number: int) -> ForwardPublication | Install | Offer:
            return msgspec.structs.replace(hold.message, number=number)

        def then(answer: Answer | None, now: int) -> None:
            if isinstance(answer, RequestRefused) and answer.code != RefusalCode.MALFORMED:
                self._later(hold, now)
            else:
                self._end(hold, dropped=answer is None or isinstance(answer, RequestRefused))

        linger_us = self._config.idle_us
        return self._streams.request(
            name_stream(address, HOP_STREAM), build, then, until_us=hold.until_us, linger_us=linger_us, now=now
        )

    def _later(self, hold: _Hold, now: int) -> None:
        self._again.set(hold, now + backoff(self._rng, self._config.connect_us, min(hold.tries, PAUSE_DOUBLINGS_MAX)))
        hold.tries += 1

    def _end(self, hold: _Hold, *, dropped: bool) -> None:
        self.dropped += dropped
        self._held[hold.node] -= 1
        if not self._held[hold.node]:
            del self._held[hold.node]
        if hold.entry is not None:
            del self._under[hold.entry][hold]
            if not self._under[hold.entry]:
                del self._under[hold.entry]


UNLISTED_SHARE: Final = 8
"""What is for somebody who is not listed is taken while no more than one in so many places is."""


@dataclass(slots=True, eq=False)
class _Hold:
    node: bytes
    message: ForwardPublication | Install | Offer
    until_us: int
    entry: bytes | None
    tries: int = 0

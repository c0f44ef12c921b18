"""The hop queue: messages that a node has to forward to others, until they are accepted or expire.

A message goes to a listed node, on the one stream to that node for all forwarded messages. If the node refuses it for
now, the queue retries later: the node may have restarted and not yet have its instructions again. A node that is no
longer listed may be listed again. The queue drops and counts messages that expire or find no capacity.
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
"""The address of another node, or None if it is not listed."""

ForwardToSelf: TypeAlias = Callable[[ForwardPublication, int], None]
"""Handles a message that a node forwards to itself; raises `RemoteError`."""


class HopQueue:
    """Bounded: `holds_max` messages, of which `holds_each` for one node, and a small share for all unlisted nodes.

    Otherwise an adversary could fill the queue with messages for unlisted nodes and shut out all others.
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
        """Messages that wait under each entry of this node's table."""
        self._again: Timers[_Hold] = Timers()
        self.dropped = 0

    def __len__(self) -> int:
        return self._held.total()

    @property
    def longest_queue(self) -> int:
        """Messages waiting for the node with the longest queue."""
        return max(self._held.values(), default=0)

    def has_room(self, node: bytes) -> bool:
        most = self._config.holds_max
        if self._where(node) is None and node != self._home:
            most //= UNLISTED_SHARE
        return len(self) < most and self._held[node] < self._config.holds_each

    def send(
        self, node: bytes, message: ForwardPublication | Install | Offer, now: int, *, entry: bytes | None = None
    ) -> None:
        """Forward this message, which arrived under `entry`; drop it if the queue is full."""
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
        """Messages that arrived under this entry and wait for other nodes but not for `besides`; each message once.

        Each message once: otherwise an installer that redirects an entry repeatedly would double the waiting messages
        each time.
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
"""Messages for unlisted nodes are accepted while at most one in this many places is taken."""


@dataclass(slots=True, eq=False)
class _Hold:
    node: bytes
    message: ForwardPublication | Install | Offer
    until_us: int
    entry: bytes | None
    tries: int = 0

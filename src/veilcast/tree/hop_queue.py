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
        address_of: FindAddress,
        forward_to_self: ForwardToSelf,
        rng: Random,
    ) -> None:
        self._config, self._streams, self._home, self._address_of = config, streams, home, address_of
        self._forward_to_self, self._rng = forward_to_self, rng
        self._counts: Counter[bytes] = Counter()
        self._under: dict[bytes, dict[_QueuedMessage, None]] = {}
        """Messages that wait under each entry of this node's table."""
        self._retries: Timers[_QueuedMessage] = Timers()
        self.dropped = 0

    def __len__(self) -> int:
        return self._counts.total()

    @property
    def longest_queue(self) -> int:
        """Messages waiting for the node with the longest queue."""
        return max(self._counts.values(), default=0)

    def has_room(self, node: bytes) -> bool:
        most = self._config.holds_max
        if self._address_of(node) is None and node != self._home:
            most //= UNLISTED_SHARE
        return len(self) < most and self._counts[node] < self._config.holds_each

    def send(
        self, node: bytes, message: ForwardPublication | Install | Offer, now: int, *, entry: bytes | None = None
    ) -> None:
        """Forward this message, which arrived under `entry`; drop it if the queue is full."""
        if not self.has_room(node):
            self.dropped += 1
            return
        self._counts[node] += 1
        queued = _QueuedMessage(node, message, now + self._config.hold_us, entry)
        if entry is not None:
            self._under.setdefault(entry, {})[queued] = None
        if node == self._home:
            # By timer, not by a call: a node that is its own parent a thousand times must not recurse.
            self._retries.set(queued, now)
        else:
            self._try(queued, now)

    def waiting_under(self, entry: bytes, except_node: bytes) -> list[ForwardPublication]:
        """Messages that arrived under this entry and wait for other nodes but not for `except_node`; each message once.

        Each message once: otherwise an installer that redirects an entry repeatedly would double the waiting messages
        each time.
        """
        waiting = [
            (queued.node, queued.message)
            for queued in self._under.get(entry, ())
            if isinstance(queued.message, ForwardPublication)
        ]
        already_there = {carry.message for node, carry in waiting if node == except_node}
        return list({carry.message: carry for _, carry in waiting if carry.message not in already_there}.values())

    def next_us(self) -> int | None:
        return self._retries.next_us()

    def handle(self, now: int) -> None:
        for queued in self._retries.pop_due(now):
            self._try(queued, now)

    def _try(self, queued: _QueuedMessage, now: int) -> None:
        address = self._address_of(queued.node)
        if now >= queued.until_us:
            self._finish(queued, dropped=True)
        elif queued.node == self._home:
            self._forward_home(queued, now)
        elif address is None or not self._request(queued, address, now):
            self._retry_later(queued, now)

    def _forward_home(self, queued: _QueuedMessage, now: int) -> None:
        try:
            if isinstance(queued.message, ForwardPublication):
                self._forward_to_self(queued.message, now)
        except (StaleError, ExcessError):
            self._retry_later(queued, now)
        except RemoteError:
            self._finish(queued, dropped=True)
        else:
            self._finish(queued, dropped=False)

    def _request(self, queued: _QueuedMessage, address: Address, now: int) -> bool:
        def build(number: int) -> ForwardPublication | Install | Offer:
            return msgspec.structs.replace(queued.message, number=number)

        def on_answer(answer: Answer | None, now: int) -> None:
            if isinstance(answer, RequestRefused) and answer.code != RefusalCode.MALFORMED:
                self._retry_later(queued, now)
            else:
                self._finish(queued, dropped=answer is None or isinstance(answer, RequestRefused))

        linger_us = self._config.idle_us
        return self._streams.request(
            name_stream(address, HOP_STREAM), build, on_answer, until_us=queued.until_us, linger_us=linger_us, now=now
        )

    def _retry_later(self, queued: _QueuedMessage, now: int) -> None:
        self._retries.set(
            queued, now + backoff(self._rng, self._config.connect_us, min(queued.tries, PAUSE_DOUBLINGS_MAX))
        )
        queued.tries += 1

    def _finish(self, queued: _QueuedMessage, *, dropped: bool) -> None:
        self.dropped += dropped
        self._counts[queued.node] -= 1
        if not self._counts[queued.node]:
            del self._counts[queued.node]
        if queued.entry is not None:
            del self._under[queued.entry][queued]
            if not self._under[queued.entry]:
                del self._under[queued.entry]


UNLISTED_SHARE: Final = 8
"""Messages for unlisted nodes are accepted while at most one in this many places is taken."""


@dataclass(slots=True, eq=False)
class _QueuedMessage:
    node: bytes
    message: ForwardPublication | Install | Offer
    until_us: int
    entry: bytes | None
    tries: int = 0

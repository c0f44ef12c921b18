"""The publisher: sends a publication to the origins that it chooses, until they have accepted it.

Each copy goes to another node, drawn from the nodes that have been listed for long enough to know all trees, through
the anonymous network and on its own stream. Each copy is sealed separately, under its own message id, so that an
observer of two copies cannot link them. If an origin does not answer, the publisher chooses another. When all copies
are accepted, the publication is settled. The further copies cover losses after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from veilcast.core.connector import backoff
from veilcast.core.outbox import Outbox, PendingPublication, Sendings
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers, earliest
from veilcast.errors import LocalError
from veilcast.machine import Address, Delay, Entropy, Event
from veilcast.tree.config import TreeConfig
from veilcast.tree.listing import Listing
from veilcast.tree.profile import TreeProfile
from veilcast.tree.streams import PUBLISH_STREAM, Answer, RequestStreams, fresh_purpose
from veilcast.wire.tree import Offer, RequestRefused


class TreePublisher:
    """Bounded: `copies` of each of `records_max` publications."""

    def __init__(
        self,
        config: TreeConfig,
        home: bytes,
        streams: RequestStreams,
        profile: TreeProfile,
        listing: Callable[[], Listing],
        outbox: Outbox,
        rng: Random,
        entropy: Entropy,
    ) -> None:
        self._config, self._home, self._streams, self._profile = config, home, streams, profile
        self._listing, self._outbox, self._rng, self._entropy = listing, outbox, rng, entropy
        self._sendings: Sendings[_Sending] = Sendings(config.wait_us)
        self._copies: Timers[_Copy] = Timers()

    def __len__(self) -> int:
        return len(self._sendings)

    def add(self, record: int, pending: PendingPublication, now: int) -> None:
        sending = _Sending(record, pending, self._profile.copies)
        self._sendings.add(record, sending, pending.content.publication, now)
        for number in range(self._profile.copies):
            self._copies.set(_Copy(sending), now + number * self._config.again_us)

    def withdraw(self, record: int) -> None:
        for sending in self._sendings.withdraw(record):
            sending.unconfirmed = 0

    def delay(self, now: int) -> Delay | None:
        """Why the latest unsettled publication waits; None if all are settled."""
        if not len(self._sendings):
            return None
        *_, last = self._sendings
        if not any(node != self._home for node in self._listing().ids):
            return Delay("the directory has told of no other node")
        if last.unconfirmed == self._profile.copies and len(last.tried) >= _TRIED_ENOUGH:
            return Delay("none of the nodes that were asked to pass it on has answered")
        answer_us = max(self._streams.usual_us, _ANSWER_US)
        if last.unconfirmed < self._profile.copies:
            return Delay("one node passes it on, and another is to confirm a copy", now + answer_us)
        return Delay("a node of the network is to take it and pass it on", now + 2 * answer_us)

    def next_us(self) -> int | None:
        return earliest(self._copies.next_us(), self._sendings.next_us())

    def handle(self, now: int) -> None:
        for copy in self._copies.pop_due(now):
            if copy.sending.unconfirmed:
                self._try(copy, now)
        self._sendings.handle(now)

    def next_event(self) -> Event | None:
        return self._sendings.next_event()

    def _try(self, copy: _Copy, now: int) -> None:
        origin = self._origin(copy.sending, now)
        if origin is None:
            self._retry_later(copy, now)
            return
        try:
            offer = self._profile.build_offer(copy.sending.pending, now)
        except LocalError:
            self._retry_later(copy, now)  # A grant has expired, and may be renewed.
            return

        def build(number: int) -> Offer:
            return Offer(number, offer.message, offer.groups, offer.labels, offer.body, offer.proof)

        def on_answer(answer: Answer | None, now: int) -> None:
            if answer is None or isinstance(answer, RequestRefused):
                self._retry_later(copy, now)
            else:
                self._confirm(copy.sending)

        peer, until_us = (
            name_stream(origin, fresh_purpose(PUBLISH_STREAM, self._entropy)),
            now + self._streams.patience_us,
        )
        if not self._streams.request(peer, build, on_answer, until_us=until_us, linger_us=0, now=now):
            self._retry_later(copy, now)

    def _retry_later(self, copy: _Copy, now: int) -> None:
        if copy.sending.unconfirmed:
            self._copies.set(copy, now + backoff(self._rng, self._config.connect_us, copy.tries) // 2 + 1)
            copy.tries += 1

    def _confirm(self, sending: _Sending) -> None:
        if not sending.unconfirmed:
            return
        sending.unconfirmed -= 1
        if not sending.unconfirmed:
            self._sendings.finish(sending.record, sending)
            self._outbox.settle(sending.record, sending.pending)

    def _origin(self, sending: _Sending, now: int) -> Address | None:
        """Another node each time, among those that know all trees; while no node does, among those listed longest."""
        listing = self._listing()
        others = [number for number, node in enumerate(listing.ids) if node != self._home]
        settled = [n for n in others if listing.since[n] + SETTLED_AFTER_FETCHES * self._config.fetch_us <= now]
        if not settled:
            others.sort(key=lambda number: listing.since[number])
            settled = others[: (len(others) + 1) // 2]
        fit = [number for number in settled if listing.ids[number] not in sending.tried] or settled
        if not fit:
            return None
        chosen = self._rng.choice(fit)
        if len(sending.tried) >= TRIED_MAX:
            sending.tried.clear()
        sending.tried[listing.ids[chosen]] = None
        return listing.addresses[chosen]


@dataclass(slots=True, eq=False)
class _Sending:
    """A publication, and the number of its copies that no origin has accepted."""

    record: int
    pending: PendingPublication
    unconfirmed: int
    tried: dict[bytes, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Copy:
    sending: _Sending
    tries: int = 0


SETTLED_AFTER_FETCHES: Final = 3
"""After this many download intervals, every node knows a newcomer and has sent it the instructions of its trees."""
TRIED_MAX: Final = 64
_TRIED_ENOUGH: Final = 4
_ANSWER_US: Final = 500_000
"""Assumed time of an answer until a longer one has been measured. The path from an origin to a subscriber, on open
streams, takes no longer than one request and its answer.
"""

"""Buckets: how much of each kind of message is taken from one neighbour (the switch `buckets`).

Most of it rides in heartbeats, one in each period, so honest neighbours are slow by themselves; but nothing keeps
another from sending a thousand heartbeats a second, each of which costs us checks, tables and copies for all our
neighbours, or as many notes and stems, each of which costs the check of a signature. What is past a burst and a steady
rate is refused unread.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ExcessError
from veilcast.link.bucket import TokenBucket
from veilcast.machine import Address
from veilcast.mesh.config import Config, Rate
from veilcast.wire.messages import (
    Advert,
    Call,
    Decline,
    Greet,
    Invite,
    Message,
    Notify,
    Stem,
    Subscribe,
    SwapAsk,
    SwapLock,
    Unadvert,
    Unsubscribe,
)


class Buckets:
    """One for each neighbour and kind; of the neighbours last heard, as many as we could have four times over."""

    def __init__(self, config: Config) -> None:
        self._names_max, self._period_us = 4 * config.neighbours_max, config.heartbeat_us
        self._rates = {name: getattr(config.defences, name) for name in _KINDS} if config.defences.buckets else {}
        self._buckets: dict[Address, dict[str, TokenBucket]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, message: Message, source: Address, now: int) -> None:
        """Raise `ExcessError` if this neighbour has sent more of the kind than we take."""
        kind = _KIND_OF.get(type(message))
        if kind is None or kind not in self._rates:
            return
        buckets = self._buckets.pop(source, None) or self._new()
        self._buckets[source] = buckets
        if len(self._buckets) > self._names_max:
            del self._buckets[next(iter(self._buckets))]
        if not buckets[kind].take(now):
            raise ExcessError(f"more {kind} than we take from one neighbour")

    def _new(self) -> dict[str, TokenBucket]:
        return {kind: self._bucket(rate) for kind, rate in self._rates.items()}

    def _bucket(self, rate: Rate) -> TokenBucket:
        return TokenBucket(max(1, self._period_us // rate.per_period), rate.burst)


_KINDS: Final[dict[str, tuple[type[Message], ...]]] = {
    "adverts": (Advert, Unadvert, Call),
    "subscriptions": (Subscribe, Unsubscribe, Invite, Decline),
    "swaps": (SwapAsk, SwapLock),
    "greetings": (Greet,),
    "notes": (Notify,),
    "stems": (Stem,),
}
"""Answers in a swap and along a stem are not counted: those that nobody asked for are refused anyway."""
_KIND_OF: Final = {message: kind for kind, messages in _KINDS.items() for message in messages}

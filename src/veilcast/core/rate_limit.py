"""Rate limits: a burst, and after it a steady rate; for one source, or for each peer and kind of message.

A token bucket is one integer: the moment at which the bucket will be full again. Taking a token moves that moment on by
the price of one token. It is refused if the moment would then be further ahead than the whole burst is worth.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from veilcast.core.bounded import BoundedMap

Peer = TypeVar("Peer", bound=Hashable)


class TokenBucket:
    """Holds `burst` tokens, and gains one every `every_us`."""

    __slots__ = ("_burst_us", "_every_us", "_full_us")

    def __init__(self, every_us: int, burst: int) -> None:
        self._every_us, self._burst_us = every_us, burst * every_us
        self._full_us = 0

    def has_token(self, now: int) -> bool:
        """True if `take` would succeed now. Takes nothing."""
        return max(self._full_us, now) + self._every_us - now <= self._burst_us

    def take(self, now: int, count: int = 1) -> bool:
        """Take `count` tokens; False if there are fewer, and then none is taken."""
        if self._full_us < now:
            self._full_us = now
        full_us = self._full_us + count * self._every_us
        if full_us - now > self._burst_us:
            return False
        self._full_us = full_us
        return True

    def charge(self, now: int, count: int) -> None:
        """Take `count` tokens, whether they are there or not. While the bucket owes tokens, `take` gets none."""
        self._full_us = max(self._full_us, now) + count * self._every_us

    def exhaust(self, now: int) -> None:
        """Take all tokens that are there."""
        while self.take(now):
            pass


class Rate(NamedTuple):
    every_us: int
    """Microseconds in which one token is gained."""
    burst: int


class PeerRateLimits(Generic[Peer]):
    """A token bucket for each peer and kind of message, for the `peers_max` peers that were heard last.

    A kind without a rate is not limited.
    """

    def __init__(self, peers_max: int, rates: Mapping[str, Rate]) -> None:
        self._rates = dict(rates)
        self._buckets: BoundedMap[Peer, dict[str, TokenBucket]] = BoundedMap(peers_max)

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, peer: Peer, kind: str, now: int, count: int = 1) -> bool:
        """Take tokens of the peer's bucket for this kind; False if there are too few. The peer was heard now."""
        if kind not in self._rates:
            return True
        return self._buckets.touch(peer, self._make)[kind].take(now, count)

    def charge(self, peer: Peer, kind: str, now: int, count: int) -> None:
        """Take tokens of a peer that is known, whether they are there or not."""
        if peer in self._buckets:
            self._buckets[peer][kind].charge(now, count)

    def exhaust(self, peer: Peer, kind: str, now: int) -> None:
        """Take all tokens of a peer that is known, so that it must wait for new ones."""
        if peer in self._buckets:
            self._buckets[peer][kind].exhaust(now)

    def forget(self, peer: Peer) -> None:
        self._buckets.pop(peer, None)

    def _make(self) -> dict[str, TokenBucket]:
        return {kind: TokenBucket(rate.every_us, rate.burst) for kind, rate in self._rates.items()}

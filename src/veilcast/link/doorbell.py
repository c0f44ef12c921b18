"""Doorbells: how often strangers of one prefix may ring, so that a flood from a few leaves room for all others."""

from __future__ import annotations

from typing import Final

from veilcast.errors import StaleError
from veilcast.link.bucket import TokenBucket


class Doorbell:
    """One bucket for each prefix that rang lately. Bounded: the prefix that rang longest ago is forgotten first."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._every_us, self._burst = every_us, burst
        self._buckets: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def ring(self, prefix: str, now: int) -> None:
        """Raise if this prefix has rung too often."""
        bucket = self._buckets.pop(prefix, None)
        if bucket is None:
            bucket = TokenBucket(self._every_us, self._burst)
            if len(self._buckets) >= PREFIXES_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[prefix] = bucket
        if not bucket.take(now):
            raise StaleError("this prefix rings too often")

    def silence(self, prefix: str, now: int) -> None:
        """Let it ring no more for a while, as if it had used all it may: one that lied is not to lie again at once."""
        bucket = self._buckets.get(prefix)
        while bucket is not None and bucket.take(now):
            pass


PREFIXES_MAX: Final = 1024

"""A token bucket: lets through a burst, and after it a steady rate.

One integer says it all: the moment at which the bucket will be full again. Whoever takes a token moves it on by the
price of one, and is refused if that would be further ahead than the whole burst is worth.
"""

from __future__ import annotations


class TokenBucket:
    """Holds `burst` tokens, and gains one every `every_us`."""

    __slots__ = ("_burst_us", "_every_us", "_full_us")

    def __init__(self, every_us: int, burst: int) -> None:
        self._every_us, self._burst_us = every_us, burst * every_us
        self._full_us = 0

    def has_token(self, now: int) -> bool:
        """True if `take` would succeed now. Takes nothing."""
        return max(self._full_us, now) + self._every_us - now <= self._burst_us

    def charge(self, now: int, count: int) -> None:
        """Take so many tokens, whether they are there or not. While the bucket owes tokens, `take` gets none."""
        self._full_us = max(self._full_us, now) + count * self._every_us

    def take(self, now: int, count: int = 1) -> bool:
        """Take a token, or as many; False if there are not so many, and then none is taken."""
        if self._full_us < now:
            self._full_us = now
        full_us = self._full_us + count * self._every_us
        if full_us - now > self._burst_us:
            return False
        self._full_us = full_us
        return True

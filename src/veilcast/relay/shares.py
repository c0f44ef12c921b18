"""Shares: how much of a server's room each of its proxies takes, so that one that lies cannot fill it for all.

The server knows nobody but proxies, and cannot tell a proxy's many clients from one who has many names. So what it can
bound is what comes by one proxy; what the clients of that one proxy may take of it is for the proxy to say (`limits`).
"""

from __future__ import annotations

from collections import Counter

from veilcast.machine import Address


class Shares:
    """Of one kind of room. Bounded: as many entries as there are proxies who have something."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Address] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    def fits(self, proxy: Address, amount: int) -> bool:
        """Whether this proxy may take so much more. What is no more always fits, or nothing could be renewed."""
        return amount <= 0 or self._taken[proxy] + amount <= self._most

    def add(self, proxy: Address, amount: int) -> None:
        self._taken[proxy] += amount
        if not self._taken[proxy]:
            del self._taken[proxy]

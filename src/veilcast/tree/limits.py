"""Limits: how much a node takes of one stream, and of all together, before it spends anything on it.

Whoever sends is hidden, and can open another stream when one is used up. So what fills tables is also counted for all
streams together, and a flood of it keeps out what others have to say for as long as it lasts: that is the price of not
knowing who it is.
"""

from __future__ import annotations

from veilcast.link.bucket import TokenBucket
from veilcast.machine import Address
from veilcast.tree.config import TreeConfig


class Limits:
    """Bounded: of the streams last heard, `callers_max`."""

    def __init__(self, config: TreeConfig) -> None:
        self._config = config
        self._callers: dict[Address, TokenBucket] = {}
        self._installs = TokenBucket(config.installs_every_us, config.installs_burst)

    def __len__(self) -> int:
        return len(self._callers)

    def allows(self, caller: Address, now: int) -> bool:
        """Whether another message of this stream is looked at; it counts if it is."""
        bucket = self._callers.pop(caller, None)
        if bucket is None:
            bucket = TokenBucket(self._config.messages_every_us, self._config.messages_burst)
        self._callers[caller] = bucket
        if len(self._callers) > self._config.callers_max:
            del self._callers[next(iter(self._callers))]
        return bucket.take(now)

    def charge(self, caller: Address, count: int, now: int) -> None:
        """Count so many messages more against this stream. It may owe them: then it is not heard for that long."""
        if (bucket := self._callers.get(caller)) is not None:
            bucket.charge(now, count)

    def allows_install(self, now: int) -> bool:
        return self._installs.take(now)

    def gone(self, caller: Address) -> None:
        self._callers.pop(caller, None)

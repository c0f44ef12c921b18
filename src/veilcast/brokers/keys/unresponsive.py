"""Replicas that a hop need not wait for, because earlier hops waited for them in vain.

A replica that is dead, or pretends to be, costs each hop all the rounds reserved for Byzantine statements, each as long
as the bound on delay. One hop may learn that, and the next ones should not wait again. A replica learns exactly what
the honest replicas agree on at the end of a hop (`share_reception`), so all learn the same. The replicas that they skip
are named in their rolls: safety does not require that two replicas know the same at the same time.

An absent replica gets no share, even if it has recovered. Byzantine replicas could then be a majority of the holders.
So an absent replica is waited for again with every attempt at a key except the first, and with keys whose names select
it, so with the same keys everywhere; half as often after each time in vain.

Absences are counted by publisher. If a replica cannot accept the keys of one publisher, because that publisher has
filled its quota, no other publisher is affected.
"""

from __future__ import annotations

from typing import Final

from veilcast.brokers.keys.scheme import KeyAttempt
from veilcast.crypto.derive import digest
from veilcast.errors import LocalError


class UnresponsiveReplicas:
    """Bounded: when it is full, the oldest entry is dropped. Replicas are identified by their keys, which several
    schemes share."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise LocalError("there must be room for at least one replica")
        self._most = most
        self._levels: dict[tuple[bytes, bytes], int] = {}
        """Number of waits in vain in a row."""

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, publisher: bytes, replica: bytes) -> int:
        return self._levels.get((publisher, replica), 0)

    def is_skipped(self, key_attempt: KeyAttempt, publisher: bytes, replica: bytes) -> bool:
        """True if this replica is not waited for with this key."""
        level = self.level(publisher, replica)
        return level > 0 and not key_attempt.attempt and not _is_retried(key_attempt.key, level)

    def record_missed(self, publisher: bytes, replica: bytes, level: int) -> None:
        """Record a wait in vain. `level` is the replica's level when the wait began: hops that waited at the same time
        count once."""
        known = self._levels.pop((publisher, replica), 0)
        if len(self._levels) >= self._most:
            del self._levels[next(iter(self._levels))]
        self._levels[publisher, replica] = max(known, min(level + 1, _LEVEL_MAX))

    def record_present(self, publisher: bytes, replica: bytes) -> None:
        self._levels.pop((publisher, replica), None)


def _is_retried(key: bytes, level: int) -> bool:
    drawn = digest(key, purpose=b"vc/wait", size=4)
    return int.from_bytes(drawn, "big") % (_RETRY_INTERVAL << level) == 0


_RETRY_INTERVAL: Final = 4
_LEVEL_MAX: Final = 5
"""One key in eight is waited for at first, one in 128 at the highest level."""

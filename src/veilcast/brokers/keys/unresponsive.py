"""Absences: whom a replica need not wait for at a hop, since what it waited for did not come before.

Pure. A replica that is dead, or plays dead, costs each hop all the rounds that liars may be heard in, and these last as
long as the bound on delay has it; one hop may learn that, and the next ones should not wait again. What is learnt here
is what honest replicas agree on at the end of a hop (`sharing.receiving`), so all of them learn the same, and whom they
then do without they say in their words: no two need to know the same at the same time for what they choose to be safe.

Who is absent has no part in a key, although it is back and honest, so among those who have, liars may be too many. So
whoever is absent is waited for again with every attempt at a key but the first, and with keys whose names pick that, so
with the same ones everywhere; half as often each time that it was in vain.

It counts by publisher: whose keys a replica cannot take, because that publisher has filled its room, has an effect on
nobody else's.
"""

from __future__ import annotations

from typing import Final

from veilcast.brokers.keys.paper_split import KeyAttempt
from veilcast.crypto.derive import digest
from veilcast.errors import LocalError


class UnresponsiveReplicas:
    """Bounded: when it is full, what was learnt first goes. Replicas go by their keys, which schemes share."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise LocalError("there is room for at least one who is absent")
        self._most = most
        self._levels: dict[tuple[bytes, bytes], int] = {}
        """How often in a row each was waited for in vain."""

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, publisher: bytes, replica: bytes) -> int:
        return self._levels.get((publisher, replica), 0)

    def is_skipped(self, origin: KeyAttempt, publisher: bytes, replica: bytes) -> bool:
        """Whether this replica is not to be waited for, with this key."""
        level = self.level(publisher, replica)
        return level > 0 and not origin.attempt and not _is_picked(origin.key, level)

    def record_missed(self, publisher: bytes, replica: bytes, level: int) -> None:
        """It was waited for in vain, by one who knew it at this level when it began to wait: hops that waited at the
        same time count once."""
        known = self._levels.pop((publisher, replica), 0)
        if len(self._levels) >= self._most:
            del self._levels[next(iter(self._levels))]
        self._levels[publisher, replica] = max(known, min(level + 1, _LEVEL_MAX))

    def record_present(self, publisher: bytes, replica: bytes) -> None:
        self._levels.pop((publisher, replica), None)


def _is_picked(key: bytes, level: int) -> bool:
    drawn = digest(key, purpose=b"vc/wait", size=4)
    return int.from_bytes(drawn, "big") % (_RETRY_INTERVAL << level) == 0


_RETRY_INTERVAL: Final = 4
_LEVEL_MAX: Final = 5
"""One key of eight, at first; one of 128, at last."""

"""Replicas that a hop need not wait for, because earlier hops waited for them in vain.

A replica that is dead, or pretends to be, costs each hop all the rounds of `transfer_receiver`. One hop may learn that,
and the next ones should not wait again.

1. Property: honest replicas that know different things of a third do not combine different dealings.
   Reason: each replica names in its roll what it skips, and a roll counts only if all that it does not skip state the
   same (`agreement`, section 3). Two replicas that know different things announce different rolls, and then all wait
   as if nobody were absent.

2. Property: honest replicas learn the same from a hop.
   Assumption: the bound on delay held in that hop.
   Reason: they record what they have agreed on at its end (`TransferReceiver._record_presence`): the authors of the
   rolls and the holders of the usable dealings. So no replica of their own node that announces in time is missed,
   whatever Byzantine replicas say of it. An honest holder can be: a Byzantine receiver that acknowledges nothing denies
   its share, is excused (`transfer_sender`, property 4), and so excludes the dealing.

3. Property: a replica that is back is waited for again, and soon.
   Reason: it is not skipped with a second or later attempt at a key, nor with a first attempt at a key whose name
   selects it. Names are the same everywhere, so all wait with the same keys. This is necessary: a skipped replica gets
   no share although it is honest, and f Byzantine replicas beside it could be enough to withhold the key.
   Constants: of the names, one in 4 << level selects it: one in 8 (`_RETRY_INTERVAL` = 4) after the first wait in vain,
   half as many after each further one, and one in 128 (`_LEVEL_MAX` = 5) from the fifth on. They weigh delay, and
   safety does not rely on them. With a level less, a dead replica delays one key in 64; with a level more,
   one that is back stays out for 256 keys on average, as long as first attempts succeed without it.

4. Property: hops that waited at the same time count once.
   Reason: a wait in vain sets the level to one more than it was when that wait began.

5. Property: a publisher can make replicas look absent for its own keys alone.
   Reason: absences are counted by publisher. A replica that refuses the keys of one publisher, because that publisher
   has filled its quota, is missed with these keys alone. A publisher also chooses its names, and so only when its own
   keys wait.
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
"""See property 3: one key in 4 << level is waited for."""

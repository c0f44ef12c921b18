"""Upheaval: most of a node's neighbours fall silent at once, and with them, for all it knows, the root and the mesh.

A root is elected with patience, and a mesh joined in random order, since haste would show who wants what. Meanwhile
notes need not wait: where a stem ends in an upheaval, its note is spread to everybody, by everybody who is in the same
upheaval. That hides readers and publisher no worse, as it is the same for all, and costs copies, for a while. One who
would have it in calm times needs half of a node's neighbours, and gets copies of what publishers signed, once each.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.wire.mesh import Notify


class MassFailure:
    """Bounded: `RECENT_MAX` notes that went by are kept, for those who may have missed them."""

    def __init__(self, period_us: int) -> None:
        self._period_us, self._until_us = period_us, 0
        self._recent: deque[tuple[int, Notify]] = deque(maxlen=RECENT_MAX)

    def observe(self, there: int, heard: int, now: int) -> bool:
        """So many neighbours are there, and so many of them were heard just now; True if an upheaval begins."""
        if there < NEIGHBOURS_MIN or SILENT_SHARE * heard >= there:
            return False
        begins = not self.is_active(now)
        self._until_us = now + DURATION_PERIODS * self._period_us
        return begins

    def is_active(self, now: int) -> bool:
        return now < self._until_us

    def resend_us(self, now: int) -> int:
        """When to send again what was under way as it began: by then all will have noticed it."""
        return now + RESEND_PERIODS * self._period_us

    def remember(self, note: Notify, now: int) -> None:
        self._recent.append((now, note))

    def recent_notifications(self, now: int) -> list[Notify]:
        """What went by since the upheaval may have begun, and is worth telling again."""
        return [note for at_us, note in self._recent if now - at_us <= RECENT_PERIODS * self._period_us]


NEIGHBOURS_MIN: Final = 4
SILENT_SHARE: Final = 2
"""Of at least so many neighbours, less than half are heard: losses alone do not do that in years."""
DURATION_PERIODS: Final = 128
"""Heartbeats in which a root is elected and its mesh formed."""
RESEND_PERIODS: Final = 2
RECENT_MAX: Final = 32
RECENT_PERIODS: Final = 8
"""Heartbeats in which it is noticed, at the latest."""

"""Mass failure: most of a node's neighbours fall silent at once, and possibly the root and the mesh with them.

The election of a root and the joining of a mesh in random order take time, because haste would reveal which node wants
what. Notifications need not wait meanwhile: if a stem ends during a mass failure, its notification is flooded to all
neighbours, by every node that observes the mass failure too.
Claim: this hides subscribers and publisher no worse, because all nodes do the same. Cost: additional copies, for a
while. An adversary that wants to cause the flood in normal times needs half of a node's neighbours, and gets copies of
what publishers signed, once each.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.wire.mesh import Notify


class MassFailure:
    """Bounded: the last `RECENT_MAX` notifications are kept, for nodes that may have missed them."""

    def __init__(self, period_us: int) -> None:
        self._period_us, self._until_us = period_us, 0
        self._recent: deque[tuple[int, Notify]] = deque(maxlen=RECENT_MAX)

    def observe(self, there: int, heard: int, now: int) -> bool:
        """True if a mass failure begins: `there` neighbours are present, and `heard` of them were heard just now."""
        if there < NEIGHBOURS_MIN or SILENT_SHARE * heard >= there:
            return False
        begins = not self.is_active(now)
        self._until_us = now + DURATION_PERIODS * self._period_us
        return begins

    def is_active(self, now: int) -> bool:
        return now < self._until_us

    def resend_us(self, now: int) -> int:
        """Time at which to repeat messages in flight at the beginning: by then all nodes will have noticed it."""
        return now + RESEND_PERIODS * self._period_us

    def remember(self, note: Notify, now: int) -> None:
        self._recent.append((now, note))

    def recent_notifications(self, now: int) -> list[Notify]:
        """Notifications since the earliest possible beginning of the mass failure."""
        return [note for at_us, note in self._recent if now - at_us <= RECENT_PERIODS * self._period_us]


NEIGHBOURS_MIN: Final = 4
SILENT_SHARE: Final = 2
"""A mass failure: of at least `NEIGHBOURS_MIN` neighbours, less than one in `SILENT_SHARE` is heard. Losses alone do
not cause that in years."""
DURATION_PERIODS: Final = 128
"""Heartbeats in which a root is elected and its mesh formed."""
RESEND_PERIODS: Final = 2
RECENT_MAX: Final = 32
RECENT_PERIODS: Final = 8
"""Heartbeats in which a mass failure is noticed, at the latest."""

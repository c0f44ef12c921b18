"""Upheaval: most of a node's neighbours fall silent at once, and with them, for all it knows, the root and the mesh.

A root is elected with patience, and a mesh joined in random order, since haste would show who wants what. Meanwhile
notes need not wait: where a stem ends in an upheaval, its note is spread to everybody, by everybody who is in the same
upheaval. That hides readers and publisher no worse, as it is the same for all, and costs copies, for a while. One who
would have it in calm times needs half of a node's neighbours, and gets copies of what publishers signed, once each.
"""

from __future__ import annotations

from typing import Final


class Upheaval:
    def __init__(self, period_us: int) -> None:
        self._lasts_us, self._until_us = LASTS_PERIODS * period_us, 0

    def observe(self, there: int, heard: int, now: int) -> bool:
        """So many neighbours are there, and so many of them were heard just now; True if an upheaval begins."""
        if there < LEAST or SHARE * heard >= there:
            return False
        begins = not self.is_on(now)
        self._until_us = now + self._lasts_us
        return begins

    def is_on(self, now: int) -> bool:
        return now < self._until_us


LEAST: Final = 4
SHARE: Final = 2
"""Of at least so many neighbours, less than half are heard: losses alone do not do that in years."""
LASTS_PERIODS: Final = 128
"""Heartbeats in which a root is elected and its mesh formed."""

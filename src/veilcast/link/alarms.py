"""Alarms: when each link wants to be looked at next, and which ones are due now, without a look at all the others.

A heap in which nothing is ever moved: a link remembers the alarm that counts, and one that it no longer wants is
thrown away when its time comes. So there are never more than were set in the second before now.
"""

from __future__ import annotations

import heapq
from itertools import count

from veilcast.link.link import Link


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Link]] = []
        self._number = count().__next__

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, link: Link, at_us: int) -> None:
        """Let this link be due at this time, unless it is before."""
        if link.alarm_us is None or at_us < link.alarm_us:
            link.alarm_us = at_us
            heapq.heappush(self._heap, (at_us, self._number(), link))

    def due(self, now: int) -> list[Link]:
        """Those whose time has come, the earliest first; each needs a new alarm."""
        links, heap = [], self._heap
        while heap and heap[0][0] <= now:
            at_us, _, link = heapq.heappop(heap)
            if link.alarm_us == at_us:
                link.alarm_us = None
                links.append(link)
        return links

    @property
    def next_us(self) -> int | None:
        return self._heap[0][0] if self._heap else None

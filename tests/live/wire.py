"""What an observer of a node's wire sees of it: when a datagram left for whom, and how long it was.

A `Wire` goes around a node's machine and writes that down, at the moment when the driver takes each frame. Cells that
are on schedule lie on a grid: how late each is follows from what was seen, without asking the machine.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

from veilcast.machine import Address, Frame, Machine
from veilcast.sim.adversaries import Wrapper

Sightings: TypeAlias = dict[Address, tuple["array[int]", "array[int]"]]
"""The times, in microseconds, and the sizes of what left for each peer."""


class Wire(Wrapper):
    def __init__(self, inner: Machine, clock: Callable[[], int]) -> None:
        super().__init__(inner)
        self._clock = clock
        self.seen: Sightings = {}

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._inner.frames_to_send(now, limit)
        if frames:
            at = self._clock()
            for frame in frames:
                times, sizes = self.seen.setdefault(frame.destination, (array("q"), array("i")))
                times.append(at)
                sizes.append(len(frame.data))
        return frames


def lateness_us(times: array[int], period_us: int) -> list[int]:
    """How late each cell of a link left after its slot; and `period_us` for each slot in which none did.

    The grid is where the earliest hundredth of the cells lies. What is early by no more than an eighth of the period is
    not late; what is later than seven eighths would pass for early, but leaves its own slot empty.
    """
    if not times:
        return []
    offsets = [(at - times[0] + period_us // 2) % period_us for at in times]
    middle = sorted(offsets)[len(offsets) // 2]
    around = [(offset - middle + period_us // 2) % period_us for offset in offsets]
    earliest = sorted(around)[len(around) // 100]
    slack = period_us // 8
    late = [max(0, (offset - earliest + slack) % period_us - slack) for offset in around]
    slots = round((times[-1] - times[0]) / period_us) + 1
    return late + [period_us] * max(0, slots - len(times))

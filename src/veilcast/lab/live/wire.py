"""What an observer of a node's wire sees of it: when a datagram left for whom, and how long it was.

A `Wire` goes around a node's machine and writes that down, at the moment when the driver takes each frame. How late a
cell is nobody can see, as each leaves at a time that was drawn for it; that is asked of the links themselves.
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
        self.late: list[tuple[int, int]] = []
        """When each cell left, and by how much that was too late."""
        self._due: dict[Address, int] = {}

    def handle_timer(self, now: int) -> None:
        for link in self.inner._links.values():
            if link.slots.next_us <= now and not link.slots.is_deferred:
                self._due[link.route.path] = link.slots.next_us
        super().handle_timer(now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._inner.frames_to_send(now, limit)
        if frames:
            at = self._clock()
            for frame in frames:
                times, sizes = self.seen.setdefault(frame.destination, (array("q"), array("i")))
                times.append(at)
                sizes.append(len(frame.data))
                if (due_us := self._due.pop(frame.destination, None)) is not None:
                    self.late.append((at, at - due_us))
        return frames

"""A simulated machine whose steps take their real processor time.

`sim.busy` uses costs that were measured before. This module measures each step as it is made. The frames and events of
a step leave when the step would be over, and inputs that arrive meanwhile wait in a queue. Every machine has its own
processor. No two runs are equal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from veilcast.machine import Address, Event, Frame
from veilcast.sim.wrappers import MachineWrapper

MachineStep: TypeAlias = Callable[[int], object]
"""A call of the inner machine, at this time."""


def processor_us() -> int:
    return time.process_time_ns() // 1_000


class TimedMachine(MachineWrapper):
    def __init__(self, inner: Any, clock: Callable[[], int] = processor_us) -> None:
        super().__init__(inner)
        self._clock = clock
        self._waiting: deque[MachineStep] = deque()
        self._frames: deque[tuple[int, Frame]] = deque()
        """Frames, and when each is ready."""
        self._events: deque[tuple[int, Event]] = deque()
        self._free_us = self._now = 0

    def run_step(self, step: MachineStep, now: int) -> None:
        """Run the step after those that wait."""
        self._waiting.append(step)
        self._work(now)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.run_step(lambda at: self.inner.receive(data, source, at), now)

    def handle_timer(self, now: int) -> None:
        self._work(now)

    def next_timer(self) -> int | None:
        due = [queue[0][0] for queue in (self._frames, self._events) if queue]
        inner = self.inner.next_timer()
        if self._waiting:
            due.append(self._free_us)
        elif inner is not None:
            due.append(max(inner, self._free_us))
        return min(due, default=None)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._work(now)
        # Frames of steps that its client called directly.
        self._frames += [(now, frame) for frame in self._frames_of_inner(now, _AT_ONCE)]
        found: list[Frame] = []
        while self._frames and self._frames[0][0] <= now and len(found) < limit:
            found.append(self._frames.popleft()[1])
        return found

    def next_event(self) -> Event | None:
        return self._events.popleft()[1] if self._events and self._events[0][0] <= self._now else None

    def _notify(self, notice: str, about: Address | int, now: int) -> None:
        told = getattr(self.inner, notice, None)
        if told is not None:
            self.run_step(lambda at: told(about, at), now)

    def _work(self, now: int) -> None:
        self._now = now
        while self._free_us <= now:
            due = self.inner.next_timer()
            if self._waiting:
                step = self._waiting.popleft()
            elif due is not None and due <= now:
                step = self.inner.handle_timer
            else:
                return
            start = self._clock()
            step(now)
            frames = self._frames_of_inner(now, _AT_ONCE)
            events = list(iter(self.inner.next_event, None))
            # Time must advance, or a machine with a due timer would handle it for ever.
            self._free_us = now + max(1, self._clock() - start)
            self._frames += [(self._free_us, frame) for frame in frames]
            self._events += [(self._free_us, event) for event in events]


_AT_ONCE = 256

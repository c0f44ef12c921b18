"""The clock that machines are driven by: Unix time in microseconds that never goes back.

The wall clock is read once, at the start; from then on the steady clock counts. Whoever sets the system's time, or
keeps it in step, moves no timer and repeats no instant. It is also the clock of the event loop, so a deadline becomes
a time of the loop without loss. What it does not count is the sleep of a machine that was suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class SystemClock:
    __slots__ = ("_ahead_ns", "_steady_ns")

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._steady_ns = steady_ns
        self._ahead_ns = wall_ns() - steady_ns()

    def now(self) -> int:
        return (self._ahead_ns + self._steady_ns()) // 1000

    def loop_time(self, at_us: int) -> float:
        """The time of the event loop, in seconds, when `now()` will be `at_us`."""
        return (at_us * 1000 - self._ahead_ns) / 1e9

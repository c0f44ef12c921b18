"""The clock of all drivers: Unix time in microseconds that never goes back.

The clock reads the wall clock once, at the start; from then on it follows the monotonic clock. So a change of the
system time moves no timer and repeats no instant. The event loop uses the same monotonic clock, so a deadline converts
to loop time without loss. The clock does not count the time while the computer is suspended.
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
        """Return the time of the event loop, in seconds, at which `now()` will return `at_us`."""
        return (at_us * 1000 - self._ahead_ns) / 1e9

"""A node's clock: the world's time, some way off, and running a little fast or slow.

`read` is the time a machine is told; it never goes back, even when the clock is set back: it then stands
still until the old reading is reached again, as a careful driver makes it. `when` is the inverse: the first
instant of the world at which the clock shows a deadline, so that timers fire on the node's own time. Both are
exact in integers.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ConfigError


class Clock:
    """`offset_us` ahead of the world at `since_us`; gains `drift_ppm` microseconds a second from then on."""

    __slots__ = ("_floor", "_offset", "_rate", "_since")

    def __init__(self, since_us: int, offset_us: int, drift_ppm: int, floor_us: int) -> None:
        if drift_ppm <= -_MILLION:
            raise ConfigError(f"drift_ppm must be more than -1000000, not {drift_ppm}: the clock would stand still")
        self._since = since_us
        self._offset = offset_us
        self._rate = _MILLION + drift_ppm
        self._floor = floor_us

    def read(self, world_us: int) -> int:
        shown = self._since + self._offset + (world_us - self._since) * self._rate // _MILLION
        return max(shown, self._floor)

    def when(self, deadline_us: int) -> int:
        if deadline_us <= self._floor:
            return self._since
        missing = deadline_us - self._since - self._offset
        return self._since - (-missing * _MILLION // self._rate)


_MILLION: Final = 1_000_000

"""Pace: how long to wait for something, by how long it took before.

An anonymous network answers within a tenth of a second when it is small and one's own, and within half a minute when it
is the world's and busy. Who waits the same in both either finds everybody away, or finds out too late that somebody is.
So one waits for a few times what the slowest of the last answers took, and for long while none has come.
"""

from __future__ import annotations

from typing import Final


class Pace:
    """Between `least_us` and `most_us`."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._slow_us: int | None = None

    def note(self, took_us: int) -> None:
        """It has come, after so long. What was slower once is forgotten little by little."""
        before = self._slow_us or 0
        self._slow_us = max(took_us, before - before // _FORGET)

    @property
    def is_known(self) -> bool:
        return self._slow_us is not None

    @property
    def us(self) -> int:
        if self._slow_us is None:
            return self._most_us
        return min(max(self._least_us, _TIMES * self._slow_us), self._most_us)


_TIMES: Final = 4
_FORGET: Final = 16

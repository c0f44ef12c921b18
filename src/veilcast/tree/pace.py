"""Pace: how long to wait for something, by how long it took before.

An anonymous network answers within a tenth of a second when it is small and one's own, and within half a minute when it
is the world's and busy. Who waits the same in both either finds everybody away, or finds out too late that somebody is.
So one waits for twice what it takes when it is slow, by the mean and the deviation of what it took (as TCP has it, RFC
6298), and for long while none has come. What was slow once is soon forgotten.
"""

from __future__ import annotations

from typing import Final


class Pace:
    """Between `least_us` and `most_us`."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._mean_us: int | None = None
        self._deviation_us = 0

    def note(self, took_us: int) -> None:
        """It has come, after so long."""
        if self._mean_us is None:
            self._mean_us, self._deviation_us = took_us, took_us // 2
        else:
            self._deviation_us += (abs(took_us - self._mean_us) - self._deviation_us) // 4
            self._mean_us += (took_us - self._mean_us) // 8

    @property
    def is_known(self) -> bool:
        return self._mean_us is not None

    @property
    def us(self) -> int:
        if self._mean_us is None:
            return self._most_us
        slow_us = self._mean_us + 4 * self._deviation_us
        return min(max(self._least_us, _TIMES * slow_us), self._most_us)


_TIMES: Final = 2

"""Pace: how long to wait for something, by how long it took before.

An anonymous network answers within a tenth of a second when it is small and one's own, and within half a minute when it
is the world's and busy. Who waits the same in both either finds everybody away, or finds out too late that somebody is.
So one waits for twice what it would take if it were slow, by the mean and the deviation of what it took (as TCP has it,
RFC 6298), and for long while none has come. What was slow once is soon forgotten.
"""

from __future__ import annotations

from typing import Final


class Pace:
    """Between `least_us` and `most_us`."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._mean_us: int | None = None
        self._deviation_us = 0

    @property
    def slow_us(self) -> int | None:
        """What it takes when it is slow; None before the first."""
        return None if self._mean_us is None else self._mean_us + 4 * self._deviation_us

    def note(self, took_us: int) -> None:
        """It has come, after so long."""
        if self._mean_us is None:
            self._mean_us, self._deviation_us = took_us, took_us // 2
        else:
            self._deviation_us += (abs(took_us - self._mean_us) - self._deviation_us) // 4
            self._mean_us += (took_us - self._mean_us) // 8

    def wait_us(self, guess_us: int | None = None) -> int:
        """How long to wait for the next; while none has come, by what one might guess that it takes."""
        slow_us = guess_us if self.slow_us is None else self.slow_us
        if slow_us is None:
            return self._most_us
        return min(max(self._least_us, _TIMES * slow_us), self._most_us)


_TIMES: Final = 2

"""Patience: how long a neighbour may keep us bound in games, one after another.

A lease bounds one game, not a neighbour that asks for the next as soon as one is over. So the time for which each
neighbour holds us is its debt, which it pays off by as much time in which it does not; and whoever owes too much is
refused. In the long run nobody holds us for more than half of the time. Players who mean it owe little: their games
are over in a few heartbeats, and they cool down.
"""

from __future__ import annotations

from veilcast.machine import Address


class Patience:
    """The debts of at most `names_max` neighbours; past that, the smallest is forgiven."""

    def __init__(self, debt_max_us: int, names_max: int) -> None:
        self._debt_max_us, self._names_max = debt_max_us, names_max
        self._paid_at_us: dict[Address, int] = {}

    def __len__(self) -> int:
        return len(self._paid_at_us)

    def lasts(self, neighbour: Address, now: int) -> bool:
        """Whether it may hold us once more."""
        self._paid_at_us = {name: paid for name, paid in self._paid_at_us.items() if paid > now}
        return self._paid_at_us.get(neighbour, now) - now < self._debt_max_us

    def held(self, neighbour: Address, since_us: int, now: int) -> None:
        """It has held us from then until now, and pays that off from now on, after what it owed before."""
        owed = max(self._paid_at_us.get(neighbour, since_us), since_us)
        self._paid_at_us[neighbour] = owed + 2 * (now - since_us)
        if len(self._paid_at_us) > self._names_max:
            del self._paid_at_us[min(self._paid_at_us, key=self._paid_at_us.__getitem__)]

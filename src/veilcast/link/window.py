"""A replay window: which of the last numbers were taken, as one long integer of bits.

It slides with the newest number: what lies too far behind it counts as taken, since nobody can tell any more.
"""

from __future__ import annotations

from typing import Final


class Window:
    """Which of the last `SIZE` numbers up to the newest were taken."""

    __slots__ = ("_newest", "_taken")

    def __init__(self) -> None:
        self._newest, self._taken = 0, 0

    def take(self, number: int) -> bool:
        """True the first time; False if this number was taken before, or lies behind the window."""
        if number > self._newest:
            self._taken = (self._taken << min(number - self._newest, SIZE)) & _FULL | 1
            self._newest = number
            return True
        behind = self._newest - number
        if behind >= SIZE or self._taken >> behind & 1:
            return False
        self._taken |= 1 << behind
        return True


SIZE: Final = 8192
"""As WireGuard's."""
_FULL: Final = (1 << SIZE) - 1

"""A replay window: which of the last numbers were taken, as a ring of bits.

The window slides with the newest number. A number behind the window counts as taken. The ring has one byte more than
the window needs, so the byte that the newest number enters holds no bit that still counts.
"""

from __future__ import annotations

from typing import Final


class ReplayWindow:
    """Records which of the last `WINDOW_SIZE` numbers up to the newest were taken."""

    __slots__ = ("_newest", "_ring")

    def __init__(self) -> None:
        self._newest, self._ring = 0, bytearray(_BYTES)

    def take(self, number: int) -> bool:
        """True the first time; False if this number was taken before, or lies behind the window."""
        ring, byte, bit = self._ring, number >> 3, 1 << (number & 7)
        behind = self._newest - number
        if behind < 0:
            last = self._newest >> 3
            if byte > last:
                for entered in range(max(last, byte - _BYTES) + 1, byte + 1):
                    ring[entered % _BYTES] = 0
            self._newest = number
        elif behind >= WINDOW_SIZE or ring[byte % _BYTES] & bit:
            return False
        ring[byte % _BYTES] |= bit
        return True


WINDOW_SIZE: Final = 8192
"""WireGuard's size."""
_BYTES: Final = WINDOW_SIZE // 8 + 1

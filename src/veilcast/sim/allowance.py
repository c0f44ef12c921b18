"""The faults that may still happen, as numbers: how many losses, copies, crashes and lies are left.

With more left, all can happen that can happen with fewer. So a state need not be looked at again when no more is left
of any kind than when it was met before. Sets of such numbers are bits of an integer.
"""

from __future__ import annotations

from itertools import product
from typing import Final


class Allowance:
    """All that can be left of these numbers of faults, each by its number."""

    def __init__(self, *faults: int) -> None:
        self.left: Final = list(product(*(range(number + 1) for number in faults)))
        numbers = {left: number for number, left in enumerate(self.left)}
        self.all: Final = len(self.left) - 1
        """The number of all of them."""
        self.used: Final = [sum(faults) - sum(left) for left in self.left]
        """How many have happened."""
        self.less: Final = [
            [numbers.get((*left[:kind], left[kind] - 1, *left[kind + 1 :]), -1) for kind in range(len(faults))]
            for left in self.left
        ]
        """The number after one more of each kind, or -1."""
        self.covered: Final = [sum(1 << numbers[low] for low in self.left if _within(low, left)) for left in self.left]
        """Those with which nothing more can happen than with this one, itself among them."""
        self.above: Final = [
            sum(1 << numbers[high] for high in self.left if high != left and _within(left, high)) for left in self.left
        ]
        """The others, with which all can happen that can with this one."""


def _within(low: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return all(few <= many for few, many in zip(low, high, strict=True))

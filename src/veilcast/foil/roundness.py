"""How round the ends of a range are in decimal numbers, as a broker that knows the domain sees it.

Pure. People ask for 100 to 199 or for 20.5 to 21, so a broker looks for ends at round numbers. It sees cells, and each
cell holds an interval of values: an end is as round as the roundest number in its cell. The steps are 1, 2 and 5 times
powers of ten. A range is as round as the largest step that both of its free ends lie on; an end of the domain is not
free. An upper end counts as round if its last value is, or the value right after it: 100 to 200, and 100 to 199.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import Final

from veilcast.topics import Integers, Reals


class DecimalGrid:
    """The cells of a numeric domain, by the first `bits` bits. Values and steps are whole numbers of one unit."""

    def __init__(self, domain: Integers | Reals, bits: int) -> None:
        self.bits: Final = bits
        self.top: Final = domain.cell(domain.high) >> (domain.bits - bits)
        """The last cell."""
        low, high = Fraction(domain.low), Fraction(domain.high)
        size = (high - low) / (1 << bits)
        if isinstance(domain, Integers):
            size = Fraction(1 << (domain.high - domain.low).bit_length() - bits)
        steps = list(_steps(high - low, size))
        unit = lcm(low.denominator, size.denominator, *(step.denominator for step in steps))
        self._low, self._size = int(low * unit), int(size * unit)
        self._steps = [int(step * unit) for step in steps]

    def step_of(self, first: int, last: int) -> int:
        """The largest step that the free ends of these cells lie on."""
        free = []
        if first > 0:
            free.append((self._start(first), self._start(first + 1) - 1))
        if last < self.top:
            free.append((self._start(last), self._start(last + 1)))
        return next(step for step in self._steps if all(_up(low, step) <= high for low, high in free))

    def multiple(self, step: int, cell: int) -> int:
        """The first multiple of `step` in a cell or after it, as a count of steps."""
        return _up(self._start(cell), step) // step

    def holds(self, step: int, cell: int) -> bool:
        """Whether a multiple of `step` lies in the cell."""
        return _up(self._start(cell), step) < self._start(cell + 1)

    def cell(self, value: int) -> int:
        return (value - self._low) // self._size

    def _start(self, cell: int) -> int:
        """The least value of a cell."""
        return self._low + cell * self._size


def _steps(length: Fraction, size: Fraction) -> Iterator[Fraction]:
    """From steps as long as the domain down to the first that is no longer than a cell: every cell holds that."""
    power = Fraction(1)
    while power < length:
        power *= 10
    while True:
        for step in (power, power / 2, power / 5):
            yield step
            if step <= size:
                return
        power /= 10


def _up(value: int, step: int) -> int:
    """The least multiple of `step` that is not below `value`."""
    return -(-value // step) * step

"""The axes of a figure: the places of values, and the ticks with their labels.

A linear axis has steps of 1, 2, 2.5 or 5 times a power of ten, the smallest step that does not give too many ticks. A
logarithmic axis has a tick at every power of ten, and at 2 and 5 times it if there are few. A horizontal axis over few
measured values has its ticks at these values, as in papers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tick:
    value: float
    text: str


@dataclass(frozen=True)
class Axis:
    """Maps a value to its share of the axis: 0 at the start, 1 at the end."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def shows(self, value: float) -> bool:
        """Whether the value has a place: a logarithmic axis has none for zero, and no axis has one for NaN."""
        return _fit(value, log=self.log)

    def clamp(self, value: float) -> float:
        return min(self.high, max(self.low, value))


def horizontal_axis(values: Sequence[float], *, log: bool, room: int) -> Axis:
    """The horizontal axis: it spans the values, with ticks at them if a line of `room` letters holds their labels."""
    numbers = sorted({value for value in values if _fit(value, log=log)})
    low, high = _apart(numbers, log=log)
    beyond = (high / low) ** _MARGIN if log else (high - low) * _MARGIN
    bounds = (low / beyond, high * beyond) if log else (low - beyond, high + beyond)
    measured = [Tick(number, _format_tick(number, _decimals(numbers))) for number in numbers]
    round_ones = _ticks(low, high, log=log, wanted=max(3, room // 9))
    inside = [tick for tick in round_ones if bounds[0] <= tick.value <= bounds[1]]
    choices = [measured, *(inside[::every] for every in (1, 2, 5)), [*measured, *round_ones][:1]]
    fitting = (Axis(*bounds, tuple(ticks), log=log) for ticks in choices if ticks)
    return next(axis for axis in fitting if _labels_fit(axis, room))


def vertical_axis(values: Sequence[float], *, log: bool, wanted: int) -> Axis:
    """The vertical axis: from tick to tick, from zero if the values come near it."""
    numbers = sorted({value for value in values if _fit(value, log=log)})
    low, high = _apart(numbers, log=log)
    if not log and 0 < low < _NEAR_ZERO * high:
        low = 0.0
    ticks = _ticks(low, high, log=log, wanted=wanted)
    ends = [tick.value for tick in ticks]
    return Axis(min(*ends, low), max(*ends, high), tuple(ticks), log=log)


def _ticks(low: float, high: float, *, log: bool, wanted: int) -> list[Tick]:
    """Ticks that reach beyond both ends."""
    if log:
        return _powers(low, high, wanted)
    step = _step(high - low, wanted)
    first, last = math.floor(low / step + _EPSILON), math.ceil(high / step - _EPSILON)
    decimals = max(0, -math.floor(math.log10(step) + _EPSILON))
    decimals += round(step * 10**decimals, 6) % 1 > 0
    return [Tick(round(k * step, decimals + 1), _format_tick(k * step, decimals)) for k in range(first, last + 1)]


def _powers(low: float, high: float, wanted: int) -> list[Tick]:
    first, last = math.floor(math.log10(low) + _EPSILON), math.ceil(math.log10(high) - _EPSILON)
    if last - first > 2:
        every = max(1, math.ceil((last - first) / wanted))
        exponents = range(first, last + every, every)
        in_full = first >= _SMALLEST and exponents[-1] <= _LARGEST
        return [Tick(10.0**k, _format_tick(10.0**k, max(0, -k)) if in_full else _power(k)) for k in exponents]
    every_one = [(m * 10.0**k, k) for k in range(first, last + 1) for m in (1, 2, 5)]
    start = max(value for value, _ in every_one if value <= low * (1 + _EPSILON))
    end = min((value for value, _ in every_one if value >= high * (1 - _EPSILON)), default=10.0**last)
    return [Tick(value, _format_tick(value, max(0, -k))) for value, k in every_one if start <= value <= end]


def _step(span: float, wanted: int) -> float:
    power: float = 10.0 ** math.floor(math.log10(span / wanted))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if span / (m * power) <= wanted + _EPSILON)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(_RAISED)


def _format_tick(value: float, decimals: int) -> str:
    written = f"{value:,.{decimals}f}".replace("-", "\u2212")
    return written.lstrip("\u2212") if not any(digit in "123456789" for digit in written) else written


def _decimals(numbers: Sequence[float]) -> int:
    """The fewest decimals that show all numbers exactly, up to four."""
    return next((d for d in range(4) if all(round(number, d) == number for number in numbers)), 4)


def _labels_fit(axis: Axis, room: int) -> bool:
    """Whether neighbouring labels leave a gap of two letters."""
    places = [(axis.place(tick.value) * room, len(tick.text)) for tick in axis.ticks]
    return all(b - a >= (n + m) / 2 + 2 for (a, n), (b, m) in itertools.pairwise(places))


def _apart(numbers: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Two different ends for any numbers."""
    if not numbers:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = numbers[0], numbers[-1]
    if high - low > _EPSILON * max(abs(low), abs(high)):
        return low, high
    if log:
        return low / 2, low * 2
    return (low - abs(low) / 2, low + abs(low) / 2) if low else (-1.0, 1.0)


def _fit(value: float, *, log: bool) -> bool:
    return (value == 0 and not log) or _TINIEST < (value if log else abs(value)) < _HUGEST


_MARGIN: Final = 0.025
_NEAR_ZERO: Final = 0.4
_SMALLEST, _LARGEST = -4, 6
"""Powers of ten that are written in full."""

_TINIEST, _HUGEST = 1e-90, 1e90
"""Values beyond these are not shown: they are no measures, and would overflow in squares or quotients."""

_EPSILON: Final = 1e-9
_RAISED: Final = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")

"""Decoys: fake interests of the same shape as a true one, at random places of the domain (P3, step 1).

Pure. A range keeps its width, a range up to an end of the domain keeps that end, and a string becomes another string.
An unconstrained attribute stays unconstrained. A broker that sees k + 1 such areas cannot tell which one is meant, as
far as it does not know beforehand what people subscribe to.

People choose round numbers. Beside decoys at arbitrary places, a broker would recognise the true range in two ways: by
its ends, which are round in decimals, and by its filters, because a range that is round in binary has few. So a decoy's
ends are as round as the true ones and no rounder, and its cover has as many pieces and as fine ones, or the nearest
that exists. Where few places are as round, there are fewer decoys.

Roundness is measured as a broker that knows the domain sees it (`DecimalGrid`). The broker sees cells, and each cell
holds an interval of values: an end is as round as the roundest number in its cell. The steps are 1, 2 and 5 times
powers of ten. A range is as round as the largest step that both of its free ends lie on; an end of the domain is not
free. An upper end counts as round if its last value is, or the value right after it: 100 to 200, and 100 to 199.

The same interest has the same decoys, in every epoch and every run of its owner: with fresh decoys, the true interest
would be the intersection of all sets. So decoys are drawn with the member's own key.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import count
from math import lcm
from typing import Final

import msgspec

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.random_source import SecretRandom, draw_integers
from veilcast.foil.topic_names import AreaSide, InterestArea, levels_per_attribute
from veilcast.machine import Entropy
from veilcast.topics import Integers, Reals, Schema, Strings
from veilcast.topics.dyadic import cover_range


def make_decoys(area: InterestArea, topic: str, schema: Schema, config: FoilConfig, key: Secret) -> list[InterestArea]:
    """Up to `k_s` areas, all different; fewer where there are no more of this shape."""
    rng = SecretRandom(_stream(key, topic.encode(), msgspec.msgpack.encode(area)))
    found: dict[InterestArea, None] = {area: None}
    for _ in range(_TRIES * config.k_s):
        if len(found) > config.k_s:
            break
        used_sides = [set(sides) for sides in zip(*found, strict=True)]
        sides = (_move_side(side, place, schema, config, used_sides[place], rng) for place, side in enumerate(area))
        found[tuple(sides)] = None
    return list(found)[1:]


def _move_side(
    side: AreaSide, place: int, schema: Schema, config: FoilConfig, used_sides: AbstractSet[AreaSide], rng: SecretRandom
) -> AreaSide:
    if side is None:
        return None
    domain = schema.domains[place]
    if isinstance(side, str):
        declared = config.attributes.get(domain.attribute, AttributeConfig())
        # Without declared strings, an invented one serves while the broker sees only tags. It is never published, so
        # only until the broker has counted; in plain text the broker would recognise it at once.
        made_up = [side] if config.profile == "paper" else [f"{side}{number}" for number in range(config.k_s + 1)]
        words = [str(word) for word in declared.values] or made_up
        return words[_below(len(words), rng)]
    assert not isinstance(domain, Strings), "a side of two cells is of a number"
    grid = DecimalGrid(domain, levels_per_attribute(schema)[place])
    return side if side == (0, grid.top) else _range(*side, grid, used_sides, rng)


def _range(
    first: int, last: int, grid: DecimalGrid, used_sides: AbstractSet[AreaSide], rng: SecretRandom
) -> tuple[int, int]:
    """The draw that looks most like the true range to a broker, preferring unused ones."""
    step = grid.step_of(first, last)
    pieces, finest = _shape(first, last, grid.bits)

    def unlike(ends: tuple[int, int]) -> tuple[bool, bool, int, int]:
        other, fine = _shape(*ends, grid.bits)
        return ends in used_sides, grid.step_of(*ends) != step, abs(fine - finest), abs(other - pieces)

    draws = [_binary(first, last, grid.top, rng) for _ in range(_DRAWS)]
    draws += [_decimal(first, last, grid, step, rng) for _ in range(_DRAWS)]
    return min(draws, key=unlike)


def _shape(first: int, last: int, bits: int) -> tuple[int, int]:
    """Number of pieces of the cover, and the level of the smallest."""
    nodes = cover_range(first, last, bits)
    return len(nodes), max(level for level, _ in nodes)


def _binary(first: int, last: int, top: int, rng: SecretRandom) -> tuple[int, int]:
    """A range whose free ends are multiples of the same power of two as the true ones."""
    if first == 0:
        step = _roundness(last + 1)
        return 0, step * (1 + _below(max(1, (top + 1) // step - 1), rng)) - 1
    if last >= top:
        step = _roundness(first)
        return step * (1 + _below(max(1, top // step), rng)), top
    step = min(_roundness(first), _roundness(last + 1))
    start = step * (1 + _below(max(1, (top - last + first) // step - 1), rng))
    return start, start + last - first


def _decimal(first: int, last: int, grid: DecimalGrid, step: int, rng: SecretRandom) -> tuple[int, int]:
    """A range of the same length whose free ends are multiples of the same decimal step as the true ones."""
    start = None if first == 0 else grid.multiple(step, first)
    end = None if last >= grid.top else grid.multiple(step, last)
    length = 0 if start is None or end is None else end - start
    lowest, highest = grid.multiple(step, 1), grid.multiple(step, grid.top - 1) - length
    if lowest > highest:
        return first, last
    shift = lowest + _below(highest - lowest + 1, rng)
    low = 0 if start is None else grid.cell(step * shift)
    high = grid.top if end is None else grid.cell(step * (shift + length)) - (not grid.holds(step, last))
    return (low, high) if low <= high and (end is None or high < grid.top) else (first, last)


def _roundness(cell: int) -> int:
    """The largest power of two that divides it."""
    return cell & -cell


def _below(n: int, rng: SecretRandom) -> int:
    return int(draw_integers(rng, n, (1,))[0])


def _stream(key: Secret, *parts: bytes) -> Entropy:
    """An endless stream of bytes, derived from a key and a purpose."""
    blocks = count()

    def drawn(size: int) -> bytes:
        return derive(key, b"vc/foil-decoy", *parts, next(blocks).to_bytes(8, "big"), size=size).reveal()

    return drawn


class DecimalGrid:
    """The cells of a numeric domain, by the first `bits` bits. Values and steps are integers in one unit."""

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
        """True if a multiple of `step` lies in the cell."""
        return _up(self._start(cell), step) < self._start(cell + 1)

    def cell(self, value: int) -> int:
        return (value - self._low) // self._size

    def _start(self, cell: int) -> int:
        """The least value of a cell."""
        return self._low + cell * self._size


def _steps(length: Fraction, size: Fraction) -> Iterator[Fraction]:
    """From steps as long as the domain down to the first that is no longer than a cell: every cell contains a
    multiple of it."""
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


_TRIES: Final = 16
_DRAWS: Final = 16

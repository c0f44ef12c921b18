"""What a party can compute from the group elements that it holds: a small algebra of the group.

A number is a product of powers of secrets (k_r / k_1). A point is a sum of base points (the generator G, a hash H(s)
whose logarithm is unknown, a random message M), each times a number. A party can multiply, divide and take roots of the
numbers that it holds, and add its points times its numbers. In the generic group model nothing else is possible, and
a party learns nothing but whether two such sums are equal. Therefore:

- a party can compute a number if the number's exponents are in the rational span of the exponents that it holds;
- it can compute a point if the point is in the linear span of its points, over the field that its numbers generate;
- it can distinguish two situations if some sum of its points vanishes in one and not in the other.

All three are ranks of matrices. A row is a point; a column belongs to a base and a number, up to factors that the party
holds. Each such factor is replaced by its value for random secrets, the same everywhere, so a computed rank is wrong
with probability 2^-240. Two matrices have the same vanishing sums of rows if the matrix of both side by side has the
rank of each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from veilcast.crypto.group import ORDER, Point, Scalar


@dataclass(frozen=True)
class Number:
    """A product of powers of named secrets."""

    powers: tuple[tuple[str, int], ...] = ()

    def __mul__(self, other: Number) -> Number:
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + power
        return Number(tuple(sorted((name, power) for name, power in powers.items() if power)))

    def __truediv__(self, other: Number) -> Number:
        return self * Number(tuple((name, -power) for name, power in other.powers))


ONE = Number()


class Secrets(dict[str, int]):
    """Values of secrets. A value that was not given is drawn, and is the same in every run."""

    def __missing__(self, name: str) -> int:
        self[name] = random.Random(name).randrange(1, ORDER)
        return self[name]

    def value(self, number: Number) -> int:
        return reduce(lambda so_far, each: so_far * pow(self[each[0]], each[1], ORDER) % ORDER, number.powers, 1)

    def point(self, wanted: Sum, bases: dict[str, Point]) -> Point:
        return Point.sum(bases[name] * Scalar.of(self.value(number)) for name, number in wanted.terms)


@dataclass(frozen=True)
class Sum:
    """Base points times numbers, added up."""

    terms: tuple[tuple[str, Number], ...]

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.terms + other.terms)

    def __mul__(self, number: Number) -> Sum:
        return Sum(tuple((base, each * number) for base, each in self.terms))


def secret(name: str) -> Number:
    return Number(((name, 1),))


def base(name: str) -> Sum:
    return Sum(((name, ONE),))


G = base("G")


@dataclass(frozen=True)
class GroupView:
    """The numbers and points that a party, or several parties together, hold. Every party has the generator."""

    numbers: tuple[Number, ...] = ()
    points: tuple[Sum, ...] = ()

    def __add__(self, other: GroupView) -> GroupView:
        return GroupView(self.numbers + other.numbers, self.points + other.points)

    def knows(self, wanted: Number | Sum) -> bool:
        """True if the party can compute this."""
        if isinstance(wanted, Number):
            return _span((*self.numbers, wanted)) == _span(self.numbers)
        return (self + GroupView(points=(wanted,))).rank == self.rank

    @property
    def rank(self) -> int:
        return _rank(self.matrix())

    def matrix(self) -> list[list[int]]:
        coordinates: list[tuple[str, Number]] = []
        rows: list[dict[int, int]] = []
        for point in (G, *self.points):
            row: dict[int, int] = {}
            for name, number in point.terms:
                place = self._coordinate(coordinates, name, number)
                row[place] = row.get(place, 0) + _SECRETS.value(number / coordinates[place][1])
            rows.append(row)
        return [[row.get(place, 0) for place in range(len(coordinates))] for row in rows]

    def _coordinate(self, known: list[tuple[str, Number]], name: str, number: Number) -> int:
        """Index of the coordinate of this term; a missing coordinate is added."""
        for place, (other, like) in enumerate(known):
            if other == name and self.knows(number / like):
                return place
        known.append((name, number))
        return len(known) - 1


def can_distinguish(one: GroupView, other: GroupView) -> bool:
    """True if a party that holds one of the two views can find out which one. Points correspond by their order."""
    assert one.numbers == other.numbers
    a, b = one.matrix(), other.matrix()
    together = [mine + theirs for mine, theirs in zip(a, b, strict=True)]
    return not _rank(a) == _rank(b) == _rank(together)


def _span(numbers: Sequence[Number]) -> int:
    """The rank of the exponents. They are small, so the rank modulo a large prime is the rank over fractions."""
    names = sorted({name for number in numbers for name, _ in number.powers})
    return _rank([dict(number.powers).get(name, 0) for name in names] for number in numbers)


def _rank(rows: Iterable[list[int]]) -> int:
    """The rank of a matrix modulo the order of the group."""
    found: list[list[int]] = []
    for row in rows:
        row = [value % ORDER for value in row]
        for pivot in found:
            lead = next(place for place, value in enumerate(pivot) if value)
            factor = row[lead] * pow(pivot[lead], -1, ORDER)
            row = [(a - factor * b) % ORDER for a, b in zip(row, pivot, strict=True)]
        if any(row):
            found.append(row)
    return len(found)


_SECRETS = Secrets()

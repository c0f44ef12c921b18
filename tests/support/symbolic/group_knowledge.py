"""What follows from what somebody holds: a small algebra of the group, for asking what a party could compute.

A number is a product of powers of secrets (k_r / k_1). A point is a sum of base points (the generator G, a hash H(s)
that nobody knows the logarithm of, a random message M), each times a number. Who holds some of both can multiply,
divide and take roots of numbers, and add points times numbers; in a group where nothing else is possible (the generic
model) that is all, and everything it can ever notice is that two such sums are the same. So

- a number follows if its exponents are in the rational span of those held;
- a point follows if it is in the linear span of those held, over the field that the numbers held generate;
- two situations can be told apart if some sum of the points held vanishes in one and not in the other.

All three are ranks of matrices. A row is a point; a column belongs to a base and a number, up to numbers that are held.
What is left of a number is then held, and is replaced by what it is for random secrets, the same everywhere: a rank
found so is wrong with a chance of about 2^-240. Two matrices have the same vanishing sums of rows if side by side they
have the rank of each.
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
    """Values of secrets; one that was not given is drawn, the same in every run."""

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
    """What a party, or several together, hold. Everybody has the generator."""

    numbers: tuple[Number, ...] = ()
    points: tuple[Sum, ...] = ()

    def __add__(self, other: GroupView) -> GroupView:
        return GroupView(self.numbers + other.numbers, self.points + other.points)

    def knows(self, wanted: Number | Sum) -> bool:
        """Whether it could compute this."""
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
        """The place of the coordinate that this term belongs to, which is made if there is none."""
        for place, (other, like) in enumerate(known):
            if other == name and self.knows(number / like):
                return place
        known.append((name, number))
        return len(known) - 1


def can_distinguish(one: GroupView, other: GroupView) -> bool:
    """Whether somebody who holds one of the two could find out which; their points correspond in the order given."""
    assert one.numbers == other.numbers
    a, b = one.matrix(), other.matrix()
    together = [mine + theirs for mine, theirs in zip(a, b, strict=True)]
    return not _rank(a) == _rank(b) == _rank(together)


def _span(numbers: Sequence[Number]) -> int:
    """The rank of their exponents, which are so small that it is the same modulo a large prime as over fractions."""
    names = sorted({name for number in numbers for name, _ in number.powers})
    return _rank([dict(number.powers).get(name, 0) for name in names] for number in numbers)


def _rank(rows: Iterable[list[int]]) -> int:
    """Of a matrix modulo the order of the group."""
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

"""Interests: labels, equalities, ranges, boxes, and conjunctions of several.

Pure; imports the errors and the machine contract. Every interest is a conjunction of constraints, and
`Conjunction.matches` is the specification of matching (P2, section 3): the client filters by it, the indexes are
measured against it, and each mode must equal it after the client's filter.

Strings are equal if their code points are; nothing is normalised. Numbers compare exactly, an int with a float too. The
wire form of an interest is its tuple of constraints: `Equal` and `Range` are tagged structs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeGuard

import msgspec

from veilcast.errors import LocalError
from veilcast.machine import Interest, Publication, Value

Number: TypeAlias = int | float


class Conjunction:
    """The base of every interest: constraints that must all be met."""

    __slots__ = ()

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        raise NotImplementedError

    def matches(self, publication: Publication) -> bool:
        """P2's definition: for each constraint, at least one pair has its attribute and a value within.

        Attributes may repeat, and pairs without a constraint do not count. Two constraints on one attribute may be met
        by two pairs, so they are not the same as their intersection.
        """
        for constraint in self.constraints:
            for attribute, value in publication.pairs:
                if attribute == constraint.attribute and constraint.admits(value):
                    break
            else:
                return False
        return True


class Equal(Conjunction, msgspec.Struct, frozen=True, tag="equal", forbid_unknown_fields=True):
    """The attribute has this string."""

    attribute: str
    text: str

    def __post_init__(self) -> None:
        check_attribute(self.attribute)
        check_text(self.text)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return (self,)

    def admits(self, value: Value) -> bool:
        return isinstance(value, str) and value == self.text


class Range(Conjunction, msgspec.Struct, frozen=True, tag="range", forbid_unknown_fields=True):
    """The attribute has a number between the ends. An end is closed unless declared open; None stands for no end.

    `Range("temp", 20, 25)` is 20 <= temp <= 25; `Range("price", 9.5, None, low_open=True)` is price > 9.5.
    """

    attribute: str
    low: Number | None
    high: Number | None
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        check_attribute(self.attribute)
        for end, is_open in ((self.low, self.low_open), (self.high, self.high_open)):
            if end is None:
                if is_open:
                    raise LocalError(f"the range of {self.attribute!r} is open at an end it does not have")
            elif not is_number(end):
                raise LocalError(f"the ends of the range of {self.attribute!r} must be finite numbers or None")
        if self.low is None or self.high is None:
            return
        if self.low > self.high or (self.low == self.high and (self.low_open or self.high_open)):
            raise LocalError(f"the range of {self.attribute!r} is empty")

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return (self,)

    def admits(self, value: Value) -> bool:
        if not is_number(value):
            return False
        above = self.low is None or (self.low < value if self.low_open else self.low <= value)
        below = self.high is None or (value < self.high if self.high_open else value <= self.high)
        return above and below


Constraint: TypeAlias = Equal | Range


class Label(Conjunction, msgspec.Struct, frozen=True, tag="label"):
    """A topic by name: the reserved attribute "topic" has this string."""

    name: str

    def __post_init__(self) -> None:
        check_text(self.name)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return _label_constraints(self.name)

    @property
    def pair(self) -> tuple[str, Value]:
        """The pair that a publication on this label has."""
        return (TOPIC, self.name)


@dataclass(frozen=True, init=False, repr=False)
class Box(Conjunction):
    """One closed range for each of several attributes: `Box({"lat": (48, 49), "lon": (11, 12)})`."""

    sides: tuple[Range, ...]

    def __init__(self, sides: Mapping[str, tuple[Number | None, Number | None]]) -> None:
        if not isinstance(sides, Mapping) or not all(
            isinstance(s, tuple | list) and len(s) == 2 for s in sides.values()
        ):
            raise LocalError('a Box is made from a dict of attributes and their ends, as {"lat": (48, 49)}')
        ranges = tuple(Range(attribute, low, high) for attribute, (low, high) in sorted(sides.items()))
        check_count(ranges)
        object.__setattr__(self, "sides", ranges)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return self.sides

    def __repr__(self) -> str:
        return f"Box({ {side.attribute: (side.low, side.high) for side in self.sides} })"


@dataclass(frozen=True, init=False, repr=False)
class All(Conjunction):
    """Several interests at once: `All(Equal("class", "x"), Range("price", 9.5, None, low_open=True))`."""

    parts: tuple[Conjunction, ...]

    def __init__(self, *parts: Conjunction) -> None:
        for part in parts:
            if not isinstance(part, Conjunction):
                raise LocalError(f"All(...) takes interests, as Label({'name'!r}), not {type(part).__name__}")
        object.__setattr__(self, "parts", parts)
        check_count(self.constraints)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(constraint for part in self.parts for constraint in part.constraints)

    def __repr__(self) -> str:
        return f"All({', '.join(map(repr, self.parts))})"


# --- rules for legal parts, shared with the domains -----------------------------------------------------------


def topic_of(interest: Interest) -> tuple[str, Conjunction]:
    """The topic whose keys a subscription uses, and the whole interest. Raises `LocalError` if it names no topic."""
    if isinstance(interest, Conjunction):
        for constraint in interest.constraints:
            if isinstance(constraint, Equal) and constraint.attribute == TOPIC:
                return constraint.text, interest
    raise LocalError("a subscription names its topic: it needs a label")


def topics_of(publication: Publication) -> list[str]:
    """All topics that a publication is labelled with, each once.

    Raises `LocalError` if it has none, or a number as one.
    """
    topics = [value for attribute, value in publication.pairs if attribute == TOPIC]
    if not topics:
        raise LocalError("a publication names its topic: it needs a label")
    names = [topic for topic in topics if isinstance(topic, str)]
    if len(names) < len(topics):
        raise LocalError(f"{TOPIC!r} must be a string")
    return list(dict.fromkeys(names))


def is_number(value: object) -> TypeGuard[Number]:
    """True for a finite number that fits 64 bits; a bool does not count."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def check_attribute(attribute: str) -> None:
    if not 1 <= _encoded_length(attribute, "an attribute") <= ATTRIBUTE_BYTES:
        raise LocalError(f"an attribute must have 1 to {ATTRIBUTE_BYTES} bytes of UTF-8")


def check_text(text: str) -> None:
    if not 1 <= _encoded_length(text, "a label or string value") <= TEXT_BYTES:
        raise LocalError(f"a label or string value must have 1 to {TEXT_BYTES} bytes of UTF-8")


def check_count(constraints: tuple[Constraint, ...]) -> None:
    if not 1 <= len(constraints) <= MAX_CONSTRAINTS:
        raise LocalError(f"an interest must have 1 to {MAX_CONSTRAINTS} constraints")


@lru_cache(maxsize=1024)
def _label_constraints(name: str) -> tuple[Constraint, ...]:
    """The constraint of a label. Cached, for every notification is matched with the labels of its subscribers."""
    return (Equal(TOPIC, name),)


def _encoded_length(text: str, what: str) -> int:
    if not isinstance(text, str):
        raise LocalError(f"{what} must be a string")
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise LocalError(f"{what} must be valid Unicode") from error


TOPIC: Final = "topic"
"""The attribute that labels live under; it is always a string and needs no declaration."""

ATTRIBUTE_BYTES: Final = 64
TEXT_BYTES: Final = 256
MAX_CONSTRAINTS: Final = 16

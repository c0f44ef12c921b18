"""Topic names: how topics, values and interests are written, so that the broker does the filtering.

Pure. An MQTT topic consists of levels separated by `/`; a filter has `+` for any one level and `#` for all that follow.
After the name of a topic come its declared attributes, in the record's order and each with the same number of levels in
every event: one for each bit of a number's cell, and one for a string. So a dyadic node, the first bits of a cell, is a
filter, and a range is as many filters as its cover has nodes (`topics.dyadic`). An unconstrained attribute is `+`, and
an interest in several attributes is the product of their covers.

An event has one value of each attribute, or none. Several values would need several topics, and a subscriber could not
tell that they belong together; so they are refused. Two ranges of one attribute mean their intersection.

- **paper**: names and strings as they are, except for the characters that MQTT reserves.
- **hardened**: the name is a tag that changes with the epoch and that only the topic's members can compute; strings are
  keyed the same way. The bits of numbers are plain: otherwise the broker could not filter. The fakes protect them.

Covers of several attributes multiply, and numbers may have many bits: both are bounded by using fewer bits. The
subscriber has the whole event and discards the excess. It also discards events that lack an attribute of which it
subscribed to all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final, TypeAlias
from urllib.parse import quote

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto.derive import derive
from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.topics import Conjunction, Equal, Integers, Range, Reals, Schema, Strings
from veilcast.topics.dyadic import cover_range
from veilcast.topics.interests import check_text

Coordinate: TypeAlias = int | str | None
EventCell: TypeAlias = tuple[Coordinate, ...]
"""The place of an event: for each declared attribute its cell or its string, or nothing."""

AreaSide: TypeAlias = tuple[int, int] | str | None
InterestArea: TypeAlias = tuple[AreaSide, ...]
"""The area of an interest: for each declared attribute the first and last cell, a string, or all."""


def levels_per_attribute(schema: Schema) -> tuple[int, ...]:
    """Number of levels of each attribute: the bits of a number, one for a string."""
    numbers = sum(not isinstance(domain, Strings) for domain in schema.domains)
    share = min(BITS_MAX, LEVELS_MAX // max(1, numbers))
    return tuple(1 if isinstance(domain, Strings) else min(domain.bits, share) for domain in schema.domains)


def locate_publication(publication: Publication, schema: Schema) -> EventCell:
    """The place of a publication; `LocalError` if it has undeclared values or two values of one attribute."""
    place: list[Coordinate] = []
    for domain, bits in zip(schema.domains, levels_per_attribute(schema), strict=True):
        values = [value for attribute, value in publication.pairs if attribute == domain.attribute]
        if len(values) > 1:
            raise LocalError(f"a foiled event has one value of {domain.attribute!r} at most")
        if not values:
            place.append(None)
        elif not isinstance(domain, Strings):
            place.append(domain.cell(values[0]) >> (domain.bits - bits))
        elif isinstance(values[0], str):
            check_text(values[0])
            place.append(values[0])
        else:
            raise LocalError(f"{domain.attribute!r} must be a string")
    return tuple(place)


def locate_interest(interest: Conjunction, schema: Schema) -> InterestArea:
    """The area of an interest in the declared attributes; `LocalError` if nothing can match it."""
    sides = zip(schema.domains, levels_per_attribute(schema), strict=True)
    return tuple(_make_side(interest, domain, bits) for domain, bits in sides)


class TopicNames:
    """The names of one topic in one epoch; without keys, those of the paper."""

    def __init__(self, prefix: str, topic: str, schema: Schema, keys: TopicKeys | None) -> None:
        self._key = None if keys is None else derive(keys.content, b"vc/foil-word")
        name = (
            quote(topic, safe="")
            if keys is None
            else derive(keys.content, b"vc/foil-name", size=NAME_BYTES).reveal().hex()
        )
        self._levels = levels_per_attribute(schema)
        self.name = name
        """The third level of all its topics."""
        self._base = f"{prefix}/{EVENTS}/{name}"
        self.repeat_topic = f"{prefix}/{REPEATS}/{name}"
        """Where subscribers ask for repeats."""
        self.presence_topic = f"{prefix}/{PRESENCE}/{name}"
        """Where publishers announce that they can be asked."""

    def topic(self, place: EventCell) -> str:
        levels = [self._base]
        for coordinate, bits in zip(place, self._levels, strict=True):
            if isinstance(coordinate, int):
                levels += format(coordinate, f"0{bits}b")
            elif coordinate is None:
                levels += [MISSING] * bits
            else:
                levels.append(self._word(coordinate))
        return "/".join(levels)

    def filters(self, area: InterestArea) -> list[str]:
        """At most `FILTERS_EACH` filters that cover the area, and little else."""
        bits = list(self._levels)
        while True:
            patterns = [
                self._patterns(side, full, fewer) for side, full, fewer in zip(area, self._levels, bits, strict=True)
            ]
            counts = [len(each) for each in patterns]
            if _product(counts) <= FILTERS_EACH:
                break
            bits[counts.index(max(counts))] -= 1
        return [self._filter([level for part in parts for level in part]) for parts in product(*patterns)]

    def _patterns(self, side: AreaSide, full: int, bits: int) -> list[list[str]]:
        """The levels of one attribute for each piece of its cover, by its first `bits` bits."""
        if isinstance(side, str):
            return [[self._word(side)]]
        if side is None or bits == 0:
            return [["+"] * full]
        first, last = (cell >> (full - bits) for cell in side)
        nodes = cover_range(first, last, bits)
        return [[*(format(prefix, f"0{level}b") if level else ""), *["+"] * (full - level)] for level, prefix in nodes]

    def _filter(self, levels: Sequence[str]) -> str:
        constrained = len(levels)
        while constrained and levels[constrained - 1] == "+":
            constrained -= 1
        return "/".join([self._base, *levels[:constrained], *(["#"] if constrained < len(levels) else [])])

    def _word(self, text: str) -> str:
        if self._key is None:
            return quote(text, safe="")
        return derive(self._key, b"vc/foil-level", text.encode(), size=WORD_BYTES).reveal().hex()


def _make_side(interest: Conjunction, domain: Strings | Integers | Reals, bits: int) -> AreaSide:
    constraints = [constraint for constraint in interest.constraints if constraint.attribute == domain.attribute]
    if not constraints:
        return None
    if isinstance(domain, Strings):
        words = list(dict.fromkeys(_equal(constraint).text for constraint in constraints))
        if len(words) > 1:
            raise LocalError(f"{domain.attribute!r} cannot be two strings at once")
        return words[0]
    ends = [domain.cells(_range(constraint)) for constraint in constraints]
    first, last = max(low for low, _ in ends), min(high for _, high in ends)
    if first > last:
        raise LocalError(f"the ranges of {domain.attribute!r} have nothing in common")
    return first >> (domain.bits - bits), last >> (domain.bits - bits)


def _equal(constraint: Equal | Range) -> Equal:
    if not isinstance(constraint, Equal):
        raise LocalError(f"{constraint.attribute!r} must be constrained by an equality, as the topic declares it")
    return constraint


def _range(constraint: Equal | Range) -> Range:
    if not isinstance(constraint, Range):
        raise LocalError(f"{constraint.attribute!r} must be constrained by a range, as the topic declares it")
    return constraint


def _product(counts: Sequence[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total


EVENTS: Final = "on"
REPEATS: Final = "again"
PRESENCE: Final = "here"
ASK: Final = "ask"
TELL: Final = "tell"
"""The second level of all topics: events, repeat requests and presence, and the paper's confirmation."""

MISSING: Final = "%"
"""In place of each level of an attribute that the event lacks; no other value is written so."""

NAME_BYTES: Final = 16
WORD_BYTES: Final = 8
"""Bytes of a keyed name and of a keyed string. The subscriber tells strings apart that share a tag by chance."""

BITS_MAX: Final = 16
"""Bits of one number."""

LEVELS_MAX: Final = 128
"""Levels of all numbers together: brokers accept up to 200 levels."""

FILTERS_EACH: Final = 64
"""Filters of one interest."""

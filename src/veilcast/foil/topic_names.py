"""What topics, values and interests are called on the broker, so that its own matching of topics does the filtering.

Pure. A topic of MQTT is levels with `/` between them, and a filter has `+` for any one level and `#` for all that
follow. After the name of a topic come its declared attributes, in the record's order and each with the same number of
levels in every event: one for each bit of a number's cell, and one for a string. So a dyadic node, the first bits of a
cell, is a filter, and a range is as many filters as its cover has nodes (`topics.dyadic`). What an attribute is not
asked for is `+`, and an interest in several attributes is the product of their covers.

An event then has one value of each attribute, or none. Several would be several topics, and nobody could tell that they
belong together; so they are refused. Two ranges of one attribute are their intersection.

- **paper**: names and strings as they are, but for the characters that MQTT needs for itself.
- **hardened**: the name is a tag that changes with the epoch and that only the topic's members can compute; strings are
  keyed the same way. The bits of numbers are as they are, or the broker could not filter: that is what fakes are for.

Covers of several attributes multiply, and numbers may have many bits: both are bounded by taking fewer bits. What comes
on top is thrown away by the reader, who has the whole event; and so are events that lack an attribute of which all
values were asked for.
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
"""Where an event lies: for each declared attribute its cell or its string, or nothing."""

AreaSide: TypeAlias = tuple[int, int] | str | None
InterestArea: TypeAlias = tuple[AreaSide, ...]
"""What an interest asks for: for each declared attribute the first and last cell, a string, or all."""


def levels_per_attribute(schema: Schema) -> tuple[int, ...]:
    """How many levels each attribute has: the bits of a number, one for a string."""
    numbers = sum(not isinstance(domain, Strings) for domain in schema.domains)
    share = min(BITS_MAX, LEVELS_MAX // max(1, numbers))
    return tuple(1 if isinstance(domain, Strings) else min(domain.bits, share) for domain in schema.domains)


def locate_publication(publication: Publication, schema: Schema) -> EventCell:
    """Where it lies; `LocalError` for what lies outside of what was declared, or in two places."""
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
    """What it asks for of the declared attributes; `LocalError` for what nothing can match."""
    sides = zip(schema.domains, levels_per_attribute(schema), strict=True)
    return tuple(_side(interest, domain, bits) for domain, bits in sides)


class TopicNames:
    """What one topic is called in one epoch; without keys, as it is in the paper."""

    def __init__(self, prefix: str, topic: str, schema: Schema, keys: TopicKeys | None) -> None:
        self._key = None if keys is None else derive(keys.content, b"vc/foil-word")
        name = (
            quote(topic, safe="")
            if keys is None
            else derive(keys.content, b"vc/foil-name", size=NAME_BYTES).reveal().hex()
        )
        self._levels = levels_per_attribute(schema)
        self.name = name
        """The third level of all topics that it has."""
        self._base = f"{prefix}/{EVENTS}/{name}"
        self.repeat_topic = f"{prefix}/{REPEATS}/{name}"
        """Where readers ask for repeats."""
        self.presence_topic = f"{prefix}/{PRESENCE}/{name}"
        """Where publishers say that they can be asked."""

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
        """All that lies in the area, and little else: at most `FILTERS_EACH`."""
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
        """The levels of one attribute, of each piece of its cover, by the first `bits` of them."""
        if isinstance(side, str):
            return [[self._word(side)]]
        if side is None or bits == 0:
            return [["+"] * full]
        first, last = (cell >> (full - bits) for cell in side)
        nodes = cover_range(first, last, bits)
        return [[*(format(prefix, f"0{level}b") if level else ""), *["+"] * (full - level)] for level, prefix in nodes]

    def _filter(self, levels: Sequence[str]) -> str:
        told = len(levels)
        while told and levels[told - 1] == "+":
            told -= 1
        return "/".join([self._base, *levels[:told], *(["#"] if told < len(levels) else [])])

    def _word(self, text: str) -> str:
        if self._key is None:
            return quote(text, safe="")
        return derive(self._key, b"vc/foil-level", text.encode(), size=WORD_BYTES).reveal().hex()


def _side(interest: Conjunction, domain: Strings | Integers | Reals, bits: int) -> AreaSide:
    asked = [constraint for constraint in interest.constraints if constraint.attribute == domain.attribute]
    if not asked:
        return None
    if isinstance(domain, Strings):
        words = list(dict.fromkeys(_equal(constraint).text for constraint in asked))
        if len(words) > 1:
            raise LocalError(f"{domain.attribute!r} cannot be two strings at once")
        return words[0]
    ends = [domain.cells(_range(constraint)) for constraint in asked]
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
"""The second level of all topics: events, what keeps them from being lost, and the paper's confirmation."""

MISSING: Final = "%"
"""In place of each level of an attribute that the event does not have; nothing else is written so."""

NAME_BYTES: Final = 16
WORD_BYTES: Final = 8
"""Bytes of a keyed name and of a keyed string. Strings that share a tag by chance are told apart by the reader."""

BITS_MAX: Final = 16
"""Of one number."""

LEVELS_MAX: Final = 128
"""Of all numbers together: brokers take up to 200 levels."""

FILTERS_EACH: Final = 64
"""Of one interest."""

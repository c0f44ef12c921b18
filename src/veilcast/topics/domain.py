"""Numeric and string domains of attributes, and how finely they are routed: the declared and signed part of a topic.

Pure; imports the errors and the interests. A numeric domain lays `2**bits` cells over its values by a map `cell` that
never falls as the value rises.

Claim: no matching value is missed, whatever the resolution and however floating point rounds.
Reason: if low <= v <= high then cell(low) <= cell(v) <= cell(high), and a range is routed as the cells of its ends and
everything between, rounded outwards.

A value that shares a cell with an end of a range but lies outside the range passes; the subscriber's client filters it.

The domains are plain structs with a tag, for use in a signed record.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Value
from veilcast.topics.dyadic import largest_cover
from veilcast.topics.interests import TOPIC, Range, check_attribute, is_number


class Strings(msgspec.Struct, frozen=True, tag="strings", forbid_unknown_fields=True):
    """The attribute holds strings, compared for equality."""

    attribute: str

    def __post_init__(self) -> None:
        check_attribute(self.attribute)


class Integers(msgspec.Struct, frozen=True, tag="integers", forbid_unknown_fields=True):
    """The attribute holds whole numbers low..high, routed by the first `bits` bits of their offset from low.

    With as many bits as the values need, matching is exact; with fewer, neighbours share a cell. The mesh, which has no
    filters, routes by the first `routing` of these bits, one mesh for each cell (see `routing_cells`); with 0 by none.
    """

    attribute: str
    low: int
    high: int
    bits: int
    routing: int = 0

    def __post_init__(self) -> None:
        check_attribute(self.attribute)
        if not (_is_integer(self.low) and _is_integer(self.high) and self.low < self.high):
            raise ConfigError(f"low and high of {self.attribute!r} must be 64-bit integers, low < high")
        finest = min(MAX_BITS, self._width())
        if not (_is_integer(self.bits) and 1 <= self.bits <= finest):
            raise ConfigError(f"bits of {self.attribute!r} must be 1 to {finest}")
        _check_routing(self)

    def cell(self, value: Value) -> int:
        """The cell of a published value."""
        if not (isinstance(value, int) and _is_integer(value) and self.low <= value <= self.high):
            raise LocalError(f"{self.attribute!r} must be an integer from {self.low} to {self.high}")
        return (value - self.low) >> (self._width() - self.bits)

    def cells(self, wanted: Range) -> tuple[int, int]:
        """The first and last cell of a range, which may reach past the domain but must touch it."""
        first, last = self.low, self.high
        if wanted.low is not None:
            first = max(first, math.floor(wanted.low) + 1 if wanted.low_open else math.ceil(wanted.low))
        if wanted.high is not None:
            last = min(last, math.ceil(wanted.high) - 1 if wanted.high_open else math.floor(wanted.high))
        if first > last:
            raise LocalError(f"the range of {self.attribute!r} lies outside {self.low} to {self.high}")
        return self.cell(first), self.cell(last)

    def _width(self) -> int:
        """The number of bits that tell all values apart."""
        return (self.high - self.low).bit_length()


class Reals(msgspec.Struct, frozen=True, tag="reals", forbid_unknown_fields=True):
    """The attribute holds numbers low..high, whole ones too, routed by `2**bits` cells of equal size.

    `routing` is as for integers.
    """

    attribute: str
    low: float
    high: float
    bits: int
    routing: int = 0

    def __post_init__(self) -> None:
        check_attribute(self.attribute)
        if not (is_number(self.low) and is_number(self.high)):
            raise ConfigError(f"low and high of {self.attribute!r} must be finite numbers")
        # A record must come back from the wire as the very bytes that were signed: 0 is not sent as 0.0 is.
        msgspec.structs.force_setattr(self, "low", float(self.low))
        msgspec.structs.force_setattr(self, "high", float(self.high))
        if not 0 < self.high - self.low < math.inf:
            raise ConfigError(f"low and high of {self.attribute!r} must be a finite distance apart, low < high")
        if not (_is_integer(self.bits) and 1 <= self.bits <= MAX_BITS):
            raise ConfigError(f"bits of {self.attribute!r} must be 1 to {MAX_BITS}")
        _check_routing(self)

    def cell(self, value: Value) -> int:
        """The cell of a published value."""
        if not is_number(value) or not self.low <= value <= self.high:
            raise LocalError(f"{self.attribute!r} must be a finite number from {self.low} to {self.high}")
        # Each step rounds, but none puts a larger value below a smaller one. The last cell has the upper end.
        share = (float(value) - self.low) / (self.high - self.low)
        return min(int(math.ldexp(share, self.bits)), (1 << self.bits) - 1)

    def cells(self, wanted: Range) -> tuple[int, int]:
        """The first and last cell of a range, which may reach past the domain but must touch it.

        An open end is routed as if it were closed: the next number beyond an end is not one that every int
        and float agrees on, and a cell too many costs less than a missed match.
        """
        first = self.low if wanted.low is None else max(self.low, wanted.low)
        last = self.high if wanted.high is None else min(self.high, wanted.high)
        if first > last:
            raise LocalError(f"the range of {self.attribute!r} lies outside {self.low} to {self.high}")
        return self.cell(first), self.cell(last)


Domain: TypeAlias = Strings | Integers | Reals


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declared attributes of a topic. "topic" itself, where labels live, is always among them."""

    domains: tuple[Domain, ...] = ()

    def __post_init__(self) -> None:
        if len(self.domains) > MAX_DOMAINS:
            raise ConfigError(f"a topic declares at most {MAX_DOMAINS} attributes")
        names = [TOPIC, *(domain.attribute for domain in self.domains)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"attribute {name!r} is declared twice, or reserved for labels")
        if sum(domain.routing for domain in self.routed) > MAX_ROUTING:
            raise ConfigError(f"a topic is routed by at most {MAX_ROUTING} bits, all attributes together")

    def find(self, attribute: str) -> Domain | None:
        """The domain of an attribute; None if it is not declared."""
        if attribute == TOPIC:
            return _LABELS
        return next((domain for domain in self.domains if domain.attribute == attribute), None)

    @property
    def routed(self) -> tuple[Integers | Reals, ...]:
        """The attributes by which the mesh routes."""
        return tuple(domain for domain in self.domains if not isinstance(domain, Strings) and domain.routing > 0)

    @property
    def largest_cover(self) -> int:
        """The number of elements of the worst constraint: what a filter must hold within its bound."""
        return largest_cover(self._finest)

    def most_queries(self, pairs: int) -> int:
        """The number of elements of the worst publication with this number of pairs."""
        return pairs * (self._finest + 1)

    @property
    def _finest(self) -> int:
        return max((domain.bits for domain in self.domains if not isinstance(domain, Strings)), default=0)


def _check_routing(domain: Integers | Reals) -> None:
    if not (_is_integer(domain.routing) and 0 <= domain.routing <= domain.bits):
        raise ConfigError(f"routing of {domain.attribute!r} must be 0 to its bits, {domain.bits}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and is_number(value)


_LABELS: Final = Strings(TOPIC)

MAX_BITS: Final = 52
"""A double tells no more cells apart."""

MAX_DOMAINS: Final = 32

MAX_ROUTING: Final = 8
"""256 meshes for one topic."""

"""Attribute declarations as a person types them: `temp:float:-40:60:12`, `floor:int:0:31`, `class:str`.

A second number of bits, as in `temp:float:-40:60:12:3`, is how finely the mesh routes by the attribute; if there is
none, it does not.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ConfigError, LocalError
from veilcast.topics import Domain, Integers, Reals, Strings


def parse_attribute(text: str) -> Domain:
    name, *rest = text.split(":")
    try:
        match rest:
            case ["str"]:
                return Strings(name)
            case ["int", low, high, *bits]:
                width = (int(high) - int(low)).bit_length()
                return Integers(name, int(low), int(high), *_bits(bits, min(_BITS, max(1, width))))
            case ["float", low, high, *bits]:
                return Reals(name, float(low), float(high), *_bits(bits, _BITS))
    except (ValueError, LocalError) as error:
        raise ConfigError(f"attribute {text!r}: {error}") from error
    raise ConfigError(
        f"attribute {text!r}: write NAME:str, or NAME:int or NAME:float with :LOW:HIGH, :BITS and :ROUTING if wanted"
    )


def _bits(given: list[str], default: int) -> tuple[int, int]:
    """The bits, and how many of them the mesh routes by."""
    if len(given) > 2:
        raise ValueError("too many parts")
    bits, routing = [*map(int, given), *(default, 0)[len(given) :]]
    return bits, routing


_BITS: Final = 16

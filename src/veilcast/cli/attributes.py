"""Attribute declarations as a person types them: `temp:float:-40:60:12`, `floor:int:0:31`, `class:str`."""

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
                return Integers(name, int(low), int(high), _bits(bits, min(_BITS, max(1, width))))
            case ["float", low, high, *bits]:
                return Reals(name, float(low), float(high), _bits(bits, _BITS))
    except (ValueError, LocalError) as error:
        raise ConfigError(f"attribute {text!r}: {error}") from error
    raise ConfigError(f"attribute {text!r}: write NAME:str, NAME:int:LOW:HIGH[:BITS] or NAME:float:LOW:HIGH[:BITS]")


def _bits(given: list[str], default: int) -> int:
    if len(given) > 1:
        raise ValueError("too many parts")
    return int(given[0]) if given else default


_BITS: Final = 16

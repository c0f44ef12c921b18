"""Numbers that a person gives: each has a least and a greatest, and a wrong one is told by its option's name."""

from __future__ import annotations

from typing import Final

from veilcast.errors import ConfigError


def within(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} must be between {low} and {high}, not {value}")


SEED_MAX: Final = (1 << 64) - 1

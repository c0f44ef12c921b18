"""Checks that the configurations of several modes share."""

from __future__ import annotations

import msgspec

from veilcast.errors import ConfigError


def check_minimum(config: msgspec.Struct, table: str, least: int, *names: str) -> None:
    """Raise `ConfigError` if one of these fields is less than `least`. The error names the field and its table."""
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(f"{table}.{name} must be at least {least}")

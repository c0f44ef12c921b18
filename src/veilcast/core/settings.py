"""The least that a setting may be: configurations say it of their fields by name, and so does the error."""

from __future__ import annotations

import msgspec

from veilcast.errors import ConfigError


def check_minimum(config: msgspec.Struct, whose: str, least: int, *names: str) -> None:
    """`ConfigError` if one of these fields is less; `whose` is the table it stands in."""
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(f"{whose}.{name} must be at least {least}")

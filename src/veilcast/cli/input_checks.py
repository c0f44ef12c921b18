"""Checks of what a person gives to a command: values of attributes, numbers within their bounds, and readable files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from veilcast.machine import Value


def check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} must be between {low} and {high}, not {value}")


SEED_MAX: Final = (1 << 64) - 1


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def parse_value(text: str) -> tuple[str, Value]:
    """Parse `temp=21.5`, `floor=3` or `class=tech`; the value is a number if it looks like one and is not in quotes."""
    from veilcast.topics.predicates import literal_value  # Most commands have no values.

    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ConfigError(f"--value {text!r}: write NAME=VALUE")
    return name, literal_value(value)

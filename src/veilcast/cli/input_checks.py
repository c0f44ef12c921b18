"""Checks of what a person gives to a command: numbers within their bounds, and readable files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pathlib import Path


def check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} must be between {low} and {high}, not {value}")


SEED_MAX: Final = (1 << 64) - 1


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error

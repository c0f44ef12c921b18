"""Files that a command is given to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veilcast.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error

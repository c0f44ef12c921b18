"""Padding to one size: length, content, zeros."""

from __future__ import annotations

from veilcast.errors import LocalError, MalformedError
from veilcast.wire.geometry import LENGTH_PREFIX


def pad(content: bytes, size: int) -> bytes:
    """Make `content` exactly `size` bytes long. Raises `LocalError` if it does not fit."""
    if len(content) > size - LENGTH_PREFIX:
        raise LocalError(f"{len(content)} bytes do not fit a block of {size}")
    return (len(content).to_bytes(LENGTH_PREFIX, "big") + content).ljust(size, b"\0")


def unpad(block: bytes) -> bytes:
    """Remove the padding. Raises `MalformedError` for a wrong length, or for anything but zeros behind the content."""
    length = int.from_bytes(block[:LENGTH_PREFIX], "big")
    end = LENGTH_PREFIX + length
    if len(block) < LENGTH_PREFIX or end > len(block) or not block.endswith(bytes(len(block) - end)):
        raise MalformedError("not a padded block")
    return block[LENGTH_PREFIX:end]

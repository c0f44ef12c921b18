"""The overlay's description on a disk, for the next life of a broker or member: it follows what this life goes by.

Replicas are replaced while members run, and one after the other all of them may be: who began again from an old
description would call nobody who is still there. A description that is as new, or newer, is left alone, for the
operator may sign onto the same file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from veilcast.brokers.overlay import SignedOverlay
from veilcast.errors import ConfigError, ForgedError, StorageError, TamperedError
from veilcast.node.broker_files import read_signed, write_signed


class StoredOverlay:
    def __init__(self, path: Path, operator: bytes, signed: SignedOverlay) -> None:
        """`signed` is what was read from there."""
        self._path, self._operator, self._kept = path, operator, signed

    def update(self, signed: SignedOverlay) -> None:
        """This is gone by now. `StorageError` if it cannot be written: it is tried again by the next call."""
        if signed != self._kept:
            if self._there() < signed.verify(self._operator).version:
                write_signed(self._path, signed)
            self._kept = signed

    def _there(self) -> int:
        """The version of what can be read there; below all others if there is nothing."""
        with suppress(ConfigError, ForgedError, StorageError, TamperedError):
            return read_signed(self._path, self._operator).verify(self._operator).version
        return -1

"""Erases past epoch keys from a running node's memory and from its keyring on the disk.

A grant is a list of keys, one for each epoch. When an epoch has been over for `PAST_US`, a thief of the keyring and its
passphrase must not find its key: traffic of that epoch that the thief recorded stays closed. The file is locked again
with the stretched passphrase that opened it, so no passphrase is stretched again. The file is replaced as a whole, so a
kill or a full disk leaves the old file. A file that another command has locked with a new key is left to that command,
which erases, too. A thread waits for the disk: links must not wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from threading import Lock
from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import lock_directory, reread_secret, rewrite_secret
from veilcast.crypto.passphrase import PassphraseLock
from veilcast.errors import VeilcastError
from veilcast.net.clock import SystemClock


def first_kept_epoch(now: int, epoch_us: int) -> int:
    """Return the first epoch whose keys are still useful: its publications may be under way, or stored for a
    subscriber."""
    return epoch_of(now - PAST_US, epoch_us) - 1


class KeyErasure:
    def __init__(
        self, path: Path, keyring: Keyring, own: PassphraseLock, clock: SystemClock, disk: Lock | None = None
    ) -> None:
        """`disk` is held while the file is changed; other writers of this process share it."""
        self._path, self._keyring, self._lock, self._clock = path, keyring, own, clock
        self._disk = disk or Lock()
        self._erased = self._failed = -1
        """The first epoch that the file has keys for, as far as is known; and the epoch of the last failed write."""

    async def watch(self) -> None:
        while True:
            first = self.erase_memory()
            if first > self._erased:
                await asyncio.to_thread(self.erase_file, first)
            await asyncio.sleep(LOOK_S)

    def erase_memory(self) -> int:
        first = first_kept_epoch(self._clock.now(), self._keyring.epoch_us)
        self._keyring.erase_past(first)
        return first

    def erase_file(self, first: int) -> None:
        """Write the keyring without keys of epochs before this one; if that fails, log it once and try again later."""
        try:
            with self._disk, lock_directory(self._path.parent):
                stored = reread_secret(self._path, Keyring, self._lock)
                if stored is not None and stored.erase_past(first):
                    rewrite_secret(self._path, stored, self._lock, os.urandom)
            self._erased = first
        except VeilcastError as error:
            if self._failed < 0:
                _LOG.warning("past epoch keys stay in the keyring's file for now: %s; trying again", error)
            self._failed = first


PAST_US: Final = 86_400_000_000
"""How long keys of a past epoch are kept, in microseconds: relays may store a notification for hours."""
LOOK_S: Final = 60.0
_LOG: Final = logging.getLogger("veilcast.keys")

"""Takes new keys into a running node: bulletins that were put into its directory, and renewed grants of its keyring.

The keyring's file is the one truth. A new bulletin is applied to the file; then the node's memory adopts the file. So a
kill at any point leaves a file that the next start, or the next look, goes on from. A renewal
(`veilcast authority accept`) changes the file, and is adopted like that. All parts of the node share the keyring; what
they have cached of it they forget (`EpochKeyCache`).

The node looks when it starts, every `LOOK_S`, on SIGHUP, and for `veilcast node reload`. A look that finds the files
unchanged costs a few `stat`s. A thread waits for the disk: links must not wait.

What stays as it was until the next start: the TLS certificate of members of relays, trees and brokers; and topics of
which a member of a mesh was no publisher at the start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from veilcast.authority import bulletin
from veilcast.authority.bulletin import Bulletin
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import lock_directory, reread_secret, rewrite_secret
from veilcast.cli.input_checks import read_file
from veilcast.cli.key_erasure import first_kept_epoch
from veilcast.crypto.passphrase import PassphraseLock
from veilcast.errors import AuthorityError, RemoteError, VeilcastError
from veilcast.net.clock import SystemClock


class KeyUpdates:
    def __init__(
        self,
        path: Path,
        bulletins: Path,
        keyring: Keyring,
        own: PassphraseLock,
        clock: SystemClock,
        disk: Lock | None = None,
    ) -> None:
        """`disk` is held while the file is changed; other writers of this process share it."""
        self._disk = disk or Lock()
        self._path, self._bulletins, self._keyring, self._lock, self._clock = path, bulletins, keyring, own, clock
        self._seen: list[tuple[str, int, int, int]] = []
        self._problems: tuple[str, ...] = ()
        self._looking = asyncio.Lock()

    async def watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def reload(self) -> tuple[bool, tuple[str, ...]]:
        """Look now, whatever was seen before. Returns whether the node has new keys, and what could not be taken."""
        self._seen = []
        return await self.look(), self._problems

    async def look(self) -> bool:
        """True if the node has new keys."""
        async with self._looking:
            files = await asyncio.to_thread(self._list_files)
            if files == self._seen:
                return False
            try:
                read = await asyncio.to_thread(self._read)
                changed = self._keyring.adopt(read.keyring) if read.keyring is not None else False
                self._problems = read.problems
                # Listed before the write of this look: it is seen as a change once more, which finds nothing new.
                self._seen = files
            except VeilcastError as error:
                self._problems, changed = (str(error),), False
            for problem in self._problems:
                _LOG.warning("new keys were not taken: %s", problem)
            if changed:
                _LOG.info("new keys are in use")
            return changed

    def _list_files(self) -> list[tuple[str, int, int, int]]:
        found = []
        for path in (self._path, *sorted(self._bulletins.glob("*.bulletin"))):
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((path.name, status.st_ino, status.st_size, status.st_mtime_ns))
        return found

    def _read(self) -> _Read:
        """The keyring's file with all bulletins applied, which is on the disk then."""
        with self._disk, lock_directory(self._path.parent):
            stored = reread_secret(self._path, Keyring, self._lock)
            if stored is None:
                return _Read(None, ("the keyring has another passphrase now; restart the node to use it",))
            now = self._clock.now()
            applied, problems = _apply_all(stored, self._bulletins, epoch_of(now, stored.epoch_us))
            applied.erase_past(first_kept_epoch(now, stored.epoch_us))
            if applied != stored:
                rewrite_secret(self._path, applied, self._lock, os.urandom)
            return _Read(applied, problems)


class _Read(NamedTuple):
    keyring: Keyring | None
    problems: tuple[str, ...] = ()


def _apply_all(keyring: Keyring, directory: Path, epoch: int) -> tuple[Keyring, tuple[str, ...]]:
    """Apply the bulletins of a directory in their order; what is of another authority, damaged or over is left out."""
    notices: list[Bulletin] = []
    for path in sorted(directory.glob("*.bulletin")):
        try:
            notices.append(bulletin.decode_bulletin(read_file(path)))
        except VeilcastError:
            continue  # It may still be copied; it is looked at again when it has changed.
    problems: list[str] = []
    for notice in sorted(notices, key=lambda each: each.number):
        try:
            keyring = bulletin.apply_bulletin(keyring, notice, epoch)
        except AuthorityError as error:
            problems.append(str(error))
        except RemoteError:
            continue
    return keyring, tuple(problems[:1])


LOOK_S: Final = 10.0
_LOG: Final = logging.getLogger("veilcast.keys")

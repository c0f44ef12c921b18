"""The keys that the bulletins of a directory revoke; bulletins may be added while the process runs.

The directory is read whenever a certificate is checked: when a peer connects, and from time to time while it stays. A
bulletin that is there at the start must be valid. A later one that is not valid is ignored, with a line in the log,
until it changes.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from veilcast.authority import bulletin
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.cli.input_checks import read_file
from veilcast.errors import ConfigError, RemoteError, StaleError, StorageError


class BulletinDirectory(RevokedKeys):
    """Bounded like every list of revoked keys; of files, it stores only which ones it has read."""

    def __init__(self, directory: Path, keyring: Keyring, now: int) -> None:
        super().__init__(keyring.root, _VOID_MAX)
        self._directory = directory
        self._known: dict[Path, tuple[int, int, int]] = {}
        """Inode, size and change time of each file. A file that was still being copied is read again. So is a file that
        replaced another: many bulletins have the same size, because they are padded."""
        for path in self._new():
            try:
                self._take(path, epoch_of(now, keyring.epoch_us))
            except StaleError:
                _LOG.info("a bulletin is of an expired sub-authority; it is ignored")
            except RemoteError as error:
                raise ConfigError(
                    f"bulletins: {path} is not of this keyring's authority, or damaged: {error}"
                ) from error

    def check_key(self, issuer: bytes, name: bytes, epoch: int) -> None:
        for path in self._new():
            try:
                self._take(path, epoch)
            except (RemoteError, StorageError):
                _LOG.warning("a new bulletin is not of this authority, or damaged; it is ignored")
        super().check_key(issuer, name, epoch)

    def _new(self) -> list[Path]:
        found = dict[Path, tuple[int, int, int]]()
        for path in sorted(self._directory.glob("*.bulletin")):
            with suppress(FileNotFoundError):  # It has been taken away just now.
                status = path.stat()
                found[path] = status.st_ino, status.st_size, status.st_mtime_ns
        new = [path for path, file in found.items() if self._known.get(path) != file]
        self._known = found
        return new

    def _take(self, path: Path, epoch: int) -> None:
        self.add(bulletin.decode_bulletin(read_file(path)), epoch)


_VOID_MAX: Final = 65_536
_LOG: Final = logging.getLogger("veilcast.bulletins")

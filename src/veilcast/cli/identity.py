"""The start of every process: its keyring, opened and valid now, the revoked keys, a clock and randomness."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Final, NamedTuple

from veilcast.authority import bulletin
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import open_secret
from veilcast.cli.input_checks import read_file
from veilcast.crypto.passphrase import PassphraseLock
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ConfigError, ExpiredError, RemoteError, StaleError, StorageError
from veilcast.net.clock import SystemClock
from veilcast.node.toml_file import ProcessConfig


class OpenedIdentity(NamedTuple):
    keyring: Keyring
    revoked: RevokedKeys
    clock: SystemClock
    rng: Random


def open_identity(config: ProcessConfig, passphrase: Secret) -> OpenedIdentity:
    """Open the keyring that a process's file names."""
    return open_identity_with_lock(config, passphrase)[0]


def open_identity_with_lock(config: ProcessConfig, passphrase: Secret) -> tuple[OpenedIdentity, PassphraseLock]:
    """Open the keyring; also returns the lock with which it can be written again."""
    keyring, own = open_secret(Path(config.keyring), Keyring, passphrase)
    clock = SystemClock()
    _check_current(keyring, config.keyring, clock.now())
    return OpenedIdentity(
        keyring, BulletinDirectory(Path(config.bulletins), keyring, clock.now()), clock, SystemRandom()
    ), own


def check_role(keyring: Keyring, standing: TlsRole) -> None:
    """Raise `AuthorityError` if a keyring is for another role, or for none."""
    # Here, because X.509 takes a tenth of a second to load, and most commands need none.
    from veilcast.authority.tls_identity import role_of_keyring

    own = role_of_keyring(keyring)
    if own is None:
        raise AuthorityError("this keyring has no TLS certificate; ask the authority for a new grant")
    if own != standing:
        raise AuthorityError(f"the keyring is for a {own}, not for a {standing}; ask the authority for another")


class BulletinDirectory(RevokedKeys):
    """The keys that the bulletins of a directory revoke; bulletins may be added while the process runs.

    The directory is read whenever a certificate is checked: when a peer connects, and from time to time while it stays.
    A bulletin that is there at the start must be valid. A later one that is not valid is ignored, with a line in the
    log, until it changes.

    Bounded like every list of revoked keys; of files, it stores only which ones it has read.
    """

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


def _check_current(keyring: Keyring, name: str, now: int) -> None:
    """Raise `ExpiredError`, with dates instead of epochs, unless the membership is valid now."""
    leaf, epoch = keyring.membership.certificate.leaf, epoch_of(now, keyring.epoch_us)
    if leaf.first <= epoch <= leaf.last:
        return
    from veilcast.cli.phrases import format_epoch

    if epoch > leaf.last:
        ended = format_epoch(leaf.last + 1, keyring.epoch_us)
        raise ExpiredError(f"{name}: the membership ended {ended}; ask the authority for a new grant")
    begins = format_epoch(leaf.first, keyring.epoch_us)
    raise ExpiredError(f"{name}: the membership begins {begins}; if that is past, set this machine's clock")


_VOID_MAX: Final = 65_536
_LOG: Final = logging.getLogger("veilcast.bulletins")

"""The start of every process: its keyring, opened and valid now, the revoked keys, a clock and randomness."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import open_secret
from veilcast.cli.bulletin_directory import BulletinDirectory
from veilcast.crypto.passphrase import PassphraseLock
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ExpiredError
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

"""What every process begins with: its keyring, opened and in force, whom bulletins shut out, a clock and chance."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revoked import Revoked
from veilcast.authority.standing import Standing
from veilcast.authority.vault import open_secret
from veilcast.cli.bulletins import Bulletins
from veilcast.crypto.passphrase import Lock
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ExpiredError
from veilcast.net.clock import Clock
from veilcast.node.tomlfile import Process


class Opened(NamedTuple):
    keyring: Keyring
    revoked: Revoked
    clock: Clock
    rng: Random


def open_keyring(config: Process, passphrase: Secret) -> Opened:
    """What a process's file names, as it is now."""
    return open_with_lock(config, passphrase)[0]


def open_with_lock(config: Process, passphrase: Secret) -> tuple[Opened, Lock]:
    """The same, with the lock by which the keyring can be written again."""
    keyring, own = open_secret(Path(config.keyring), Keyring, passphrase)
    clock = Clock()
    _check_current(keyring, config.keyring, clock.now())
    return Opened(keyring, Bulletins(Path(config.bulletins), keyring, clock.now()), clock, SystemRandom()), own


def check_standing(keyring: Keyring, standing: Standing) -> None:
    """Whether a keyring is for this role; `AuthorityError` if it is for another, or for none."""
    # Here, because X.509 takes a tenth of a second to load, and most commands need none.
    from veilcast.authority.tls import standing_of

    own = standing_of(keyring)
    if own is None:
        raise AuthorityError("this keyring has no TLS certificate; ask the authority for a new grant")
    if own != standing:
        raise AuthorityError(f"the keyring is for a {own}, not for a {standing}; ask the authority for another")


def _check_current(keyring: Keyring, name: str, now: int) -> None:
    """Say in dates what the keyring itself says in epochs."""
    leaf, epoch = keyring.membership.certificate.leaf, epoch_of(now, keyring.epoch_us)
    if leaf.first <= epoch <= leaf.last:
        return
    from veilcast.cli.dates import date_of

    if epoch > leaf.last:
        ended = date_of(leaf.last + 1, keyring.epoch_us)
        raise ExpiredError(f"{name}: the membership ended {ended}; ask the authority for a new grant")
    begins = date_of(leaf.first, keyring.epoch_us)
    raise ExpiredError(f"{name}: the membership begins {begins}; if that is past, set this machine's clock")

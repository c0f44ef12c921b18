"""The operator of an overlay and its brokers, outside the machines: a file for what is secret, lines for what is not.

The operator's key is locked with a passphrase, and needed only to sign a description of the overlay (`broker_files`).
Everybody is told its public half, and goes by no description that it did not sign. A broker tells the operator who it
is in one line: the key that it signs with, and the name that its certificate has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from veilcast.authority.keyring import Keyring
from veilcast.authority.standing import broker_key
from veilcast.authority.vault import read_private, write_whole
from veilcast.crypto.derive import FINGERPRINT, fingerprint
from veilcast.crypto.passphrase import Cost, lock, unlock
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SEED, SigningKey
from veilcast.errors import ConfigError, PassphraseError, TamperedError
from veilcast.machine import Entropy
from veilcast.node import lines


class BrokerPublic(NamedTuple):
    """Who a broker is."""

    key: bytes
    name: bytes
    """Of its certificate."""

    @property
    def caller(self) -> str:
        """Under which it appears on TLS."""
        return f"broker:{self.name.hex()}"


def public_of(keyring: Keyring) -> BrokerPublic:
    return BrokerPublic(
        broker_key(keyring.membership.link).public, fingerprint(keyring.membership.certificate.leaf.subject)
    )


def spell_broker(public: BrokerPublic) -> str:
    return lines.spell(_BROKER, public.key + public.name)


def read_broker(key: str, text: str) -> BrokerPublic:
    """What stands at this key of a file; `ConfigError` if it is not what a broker told."""
    try:
        data = lines.read(_BROKER, text)
        if len(data) != PUBLIC + FINGERPRINT:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers init` printed; copy it whole") from error
    return BrokerPublic(data[:PUBLIC], data[PUBLIC:])


def spell_operator(public: bytes) -> str:
    return lines.spell(_OPERATOR, public)


def read_operator(key: str, text: str) -> bytes:
    try:
        data = lines.read(_OPERATOR, text)
        if len(data) != PUBLIC:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers overlay init` printed; copy it whole") from error
    return data


def write_operator_key(path: Path, key: SigningKey, passphrase: Secret, *, cost: Cost, entropy: Entropy) -> None:
    write_whole(path, lock(key.seed.reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy))


def read_operator_key(path: Path, passphrase: Secret) -> SigningKey:
    try:
        seed = unlock(read_private(path), passphrase, purpose=_PURPOSE)
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error
    if len(seed) != SEED:
        raise TamperedError(f"{path}: not the key of an operator")
    return SigningKey(Secret(seed))


_PURPOSE: Final = b"veilcast/overlay-operator"
_BROKER: Final = "veilcast-broker-"
_OPERATOR: Final = "veilcast-operator-"

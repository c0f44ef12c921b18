"""The operator of an overlay and its brokers, outside the machines: a file for what is secret, lines for what is not.

The operator's key is locked with a passphrase, and needed only to sign a description of the overlay (`broker_files`).
Everybody is told its public half, and goes by no description that it did not sign. A broker tells the operator who it
is in one line: the key that it signs with, and the name that its certificate has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import derive_broker_key
from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.crypto.derive import FINGERPRINT, fingerprint
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SEED, SigningKey
from veilcast.errors import ConfigError, PassphraseError, TamperedError
from veilcast.machine import Entropy
from veilcast.node import checked_line


class BrokerPublic(NamedTuple):
    """Who a broker is."""

    key: bytes
    name: bytes
    """Of its certificate."""

    @property
    def tls_name(self) -> str:
        """Under which it appears on TLS."""
        return f"broker:{self.name.hex()}"


def broker_public(keyring: Keyring) -> BrokerPublic:
    return BrokerPublic(
        derive_broker_key(keyring.membership.link).public, fingerprint(keyring.membership.certificate.leaf.subject)
    )


def encode_broker_line(public: BrokerPublic) -> str:
    return checked_line.encode_line(_BROKER, public.key + public.name)


def decode_broker_line(key: str, text: str) -> BrokerPublic:
    """What stands at this key of a file; `ConfigError` if it is not what a broker told."""
    try:
        data = checked_line.decode_line(_BROKER, text)
        if len(data) != PUBLIC + FINGERPRINT:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers init` printed; copy it whole") from error
    return BrokerPublic(data[:PUBLIC], data[PUBLIC:])


def encode_operator_line(public: bytes) -> str:
    return checked_line.encode_line(_OPERATOR, public)


def decode_operator_line(key: str, text: str) -> bytes:
    try:
        data = checked_line.decode_line(_OPERATOR, text)
        if len(data) != PUBLIC:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers overlay init` printed; copy it whole") from error
    return data


def write_operator_key(
    path: Path, key: SigningKey, passphrase: Secret, *, cost: PassphraseCost, entropy: Entropy
) -> None:
    replace_file(path, lock_bytes(key.seed.reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy))


def read_operator_key(path: Path, passphrase: Secret) -> SigningKey:
    try:
        seed = unlock_bytes(read_private_file(path), passphrase, purpose=_PURPOSE)
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

"""Keys of onion services, and the host names that follow from them (Tor's rend-spec-v3, section 6).

The name of an onion service is its public Ed25519 key: base32 of the key, two bytes of a checksum, and the version. A
client that reaches the name has reached the holder of the key, so an address that was learnt safely needs no
certificate. Tor takes the private key in the long form that a seed is expanded to for signing.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SigningKey, verify
from veilcast.errors import MalformedError


class OnionKey:
    """The key of one service, from a seed of 32 bytes. `host` is public, the rest is secret."""

    __slots__ = ("_seed", "host")

    def __init__(self, seed: Secret) -> None:
        self._seed = seed
        self.host: Final = host_of(SigningKey(seed).public)

    def expand(self) -> Secret:
        """The 64 bytes that Tor takes: the scalar, and the prefix for nonces."""
        stretched = bytearray(hashlib.sha512(self._seed.reveal()).digest())
        stretched[0] &= 0xF8
        stretched[31] = stretched[31] & 0x7F | 0x40
        return Secret(bytes(stretched))

    def sign(self, message: bytes, *, purpose: bytes) -> bytes:
        """A signature that proves possession of the service at `host` (`check_host_signature`).

        Tor itself signs with keys that it derives from this one, and never with this one.
        """
        return SigningKey(self._seed).sign(message, purpose=purpose)

    def __repr__(self) -> str:
        return "<OnionKey>"


def host_of(public: bytes) -> str:
    """The name `....onion` of the service with this key."""
    return base64.b32encode(public + _checksum(public) + _VERSION).decode().lower() + SUFFIX


def read_host(text: str) -> bytes:
    """The public key of the service with this name.

    Raises `MalformedError` if it is not a correct name of version 3.
    """
    name = text.removesuffix(SUFFIX)
    try:
        public = base64.b32decode(name.upper())[:PUBLIC]
    except ValueError as error:
        raise MalformedError("not the name of an onion service") from error
    if len(public) != PUBLIC or host_of(public) != text:
        raise MalformedError("not the name of an onion service")
    return public


def check_host_signature(host: str, message: bytes, signature: bytes, *, purpose: bytes) -> None:
    """Raise a `RemoteError` unless the holder of the service at this host signed the message."""
    verify(read_host(host), message, signature, purpose=purpose)


def _checksum(public: bytes) -> bytes:
    return hashlib.sha3_256(b".onion checksum" + public + _VERSION).digest()[:2]


SUFFIX: Final = ".onion"
_VERSION: Final = b"\x03"

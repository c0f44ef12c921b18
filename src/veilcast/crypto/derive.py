"""Derived keys and digests of public bytes. Each hash is bound to a purpose, so that no value serves two ends."""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError


def derive(key: Secret, purpose: bytes, *parts: bytes, size: int = 32) -> Secret:
    """A key for `purpose` (at most 16 bytes). Parts are length-prefixed, so no two lists of parts collide."""
    _check(purpose)
    message = b"".join([len(part).to_bytes(4, "big") + part for part in parts])
    return Secret(hazmat.blake2b(message, size=size, key=key.reveal(), person=purpose))


def fingerprint(public: bytes) -> bytes:
    """A 16-byte name of a public key, for lists and for people."""
    return digest(public, purpose=b"vc/fingerprint", size=FINGERPRINT)


def digest(public: bytes, *, purpose: bytes, size: int = 32) -> bytes:
    """A hash of public bytes, useless for any other purpose."""
    _check(purpose)
    return hazmat.blake2b(public, size=size, person=purpose)


def _check(purpose: bytes) -> None:
    if not 1 <= len(purpose) <= 16:
        raise LocalError("a hash's purpose has 1 to 16 bytes")


FINGERPRINT: Final = 16

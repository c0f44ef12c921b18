"""Deriving one key from another: a keyed hash with a purpose, so that no key serves two ends."""

from __future__ import annotations

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError


def derive(key: Secret, purpose: bytes, *parts: bytes) -> Secret:
    """A 32-byte key for `purpose` (at most 16 bytes); parts are length-prefixed, so no two lists of them collide."""
    if not 1 <= len(purpose) <= 16:
        raise LocalError("a derivation's purpose has 1 to 16 bytes")
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return Secret(hazmat.blake2b(message, size=32, key=key.reveal(), person=purpose))


def fingerprint(public: bytes) -> bytes:
    """A 16-byte name for public bytes, for lists and for people."""
    return hazmat.blake2b(public, size=16, person=b"vc/fingerprint")

"""Key agreement with X25519. The result is a secret to derive keys from, and never a key itself."""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError


def public_of(private: Secret) -> bytes:
    return hazmat.x25519_public(_reveal_private_key(private))


def agree(private: Secret, public: bytes) -> Secret:
    """The secret that both sides compute.

    Raises `MalformedError` for bytes that are not a public key, or a key of small order.
    """
    if len(public) != PUBLIC:
        raise MalformedError("not a usable X25519 public key")
    return Secret(hazmat.x25519(_reveal_private_key(private), public))


def _reveal_private_key(private: Secret) -> bytes:
    if len(private) != PRIVATE:
        raise LocalError(f"a private key has {PRIVATE} bytes, not {len(private)}")
    return private.reveal()


PRIVATE: Final = 32
PUBLIC: Final = 32

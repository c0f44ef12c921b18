"""Seals under a shared key: AES-256-GCM-SIV with a fresh nonce each time.

Nonces come from the entropy that the caller hands in. If a nonce ever repeats (a cloned machine, a poor generator),
GCM-SIV reveals only that the same plaintext was sealed twice in the same context. Plain GCM or ChaCha20-Poly1305 would
reveal the key stream. `context` is authenticated and not sent; both sides must name the same.

Sealed bytes: version (1) | nonce (12) | ciphertext | tag (16).
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy


def seal(key: Secret, plaintext: bytes, *, context: bytes, entropy: Entropy) -> bytes:
    return _seal_with_nonce(key, entropy(NONCE), plaintext, context)


def unseal(key: Secret, sealed: bytes, *, context: bytes) -> bytes:
    """The plaintext. Every failure is the same `ForgedError`."""
    nonce, ciphertext = _parts(sealed)
    return hazmat.gcm_siv_decrypt(_reveal_key(key), nonce, ciphertext, _bound(context))


class Sealer:
    """`seal` and `unseal` for one key and many messages: the cipher is made once."""

    __slots__ = ("_cipher",)

    def __init__(self, key: Secret) -> None:
        self._cipher = hazmat.gcm_siv(_reveal_key(key))

    def seal(self, plaintext: bytes, *, context: bytes, entropy: Entropy) -> bytes:
        nonce = entropy(NONCE)
        return _FIRST + nonce + self._cipher.encrypt(nonce, plaintext, _bound(context))

    def unseal(self, sealed: bytes, *, context: bytes) -> bytes:
        nonce, ciphertext = _parts(sealed)
        return hazmat.decrypt(self._cipher, nonce, ciphertext, _bound(context))


def _parts(sealed: bytes) -> tuple[bytes, bytes]:
    """Nonce and ciphertext."""
    if len(sealed) < OVERHEAD or sealed[0] != VERSION:
        raise ForgedError("the ciphertext does not open")
    return sealed[1 : 1 + NONCE], sealed[1 + NONCE :]


def _seal_with_nonce(key: Secret, nonce: bytes, plaintext: bytes, context: bytes) -> bytes:
    """The deterministic core. No public function lets a caller choose a nonce."""
    ciphertext = hazmat.gcm_siv_encrypt(_reveal_key(key), nonce, plaintext, _bound(context))
    return _FIRST + nonce + ciphertext


def _bound(context: bytes) -> bytes:
    """The version is authenticated with the context, so no later format can be passed off as this one."""
    return _FIRST + context


def _reveal_key(key: Secret) -> bytes:
    if len(key) != KEY:
        raise LocalError(f"a sealing key has {KEY} bytes, not {len(key)}")
    return key.reveal()


VERSION: Final = 1
_FIRST: Final = bytes((VERSION,))
KEY: Final = 32
NONCE: Final = 12
TAG: Final = 16
OVERHEAD: Final = 1 + NONCE + TAG

"""Seals that look like random bytes to everyone without the key: no version, length or counter is visible.

A `UniformSealer` seals a message with AES-256-GCM-SIV under a fresh random nonce: nonce (12) | ciphertext | tag (16).
GCM-SIV (RFC 8452) derives new keys from every nonce, and a repeated nonce shows only whether the same plaintext was
sealed twice. So one key can serve a whole network, whose members cannot agree on counters.

A `HeaderMask` hides a few bytes that travel beside a ciphertext, such as its number, which the receiver needs before it
can open the ciphertext. The bytes are XORed with a cipher's output on a sample of that ciphertext, as in QUIC (RFC
9001, 5.4). The sample looks random and does not repeat, so the mask does not repeat either.

Both load their keys once: loading a key costs more than using it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy


class UniformSealer:
    """Seals under one key, for all who hold it."""

    __slots__ = ("_cipher",)

    def __init__(self, key: Secret) -> None:
        self._cipher = hazmat.gcm_siv(_reveal_key(key))

    def seal(self, plaintext: bytes, *, entropy: Entropy) -> bytes:
        nonce = entropy(NONCE)
        return nonce + self._cipher.encrypt(nonce, plaintext, None)

    def open(self, sealed: bytes) -> bytes:
        """The plaintext. Every failure is the same `ForgedError`."""
        if len(sealed) < OVERHEAD:
            raise ForgedError("the ciphertext does not open")
        return hazmat.decrypt(self._cipher, sealed[:NONCE], sealed[NONCE:], b"")


class HeaderMask:
    """Gives eight bytes for every sample, as a number to XOR with."""

    __slots__ = ("_encrypt",)

    def __init__(self, key: Secret) -> None:
        self._encrypt = hazmat.aes_blocks(_reveal_key(key))

    def mask_for(self, sample: bytes) -> int:
        """The mask for a sample of `SAMPLE` bytes. Shorter samples would be mixed up with the next."""
        number: int = _NUMBER.unpack_from(self._encrypt(sample))[0]
        return number


def _reveal_key(key: Secret) -> bytes:
    if len(key) != KEY:
        raise LocalError(f"the key of a veil has {KEY} bytes, not {len(key)}")
    return key.reveal()


KEY: Final = 32
NONCE: Final = 12
TAG: Final = 16
OVERHEAD: Final = NONCE + TAG
SAMPLE: Final = 16
_NUMBER: Final = Struct(">Q")

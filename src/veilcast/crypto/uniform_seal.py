"""Veils: what must look like random bytes to whoever lacks the key, with no version, length or counter to see.

A `UniformSealer` seals a message with AES-256-GCM-SIV under a fresh random nonce: nonce (12) | ciphertext | tag (16).
GCM-SIV
(RFC 8452) derives new keys from every nonce, and a nonce that comes twice shows only whether the same was sealed twice;
so one key can serve a whole network, whose members cannot agree on counters.

A `HeaderMask` hides a few bytes that travel beside a ciphertext, such as its number, which the reader needs before it
can
open it: they are XORed with what a cipher makes of a sample of that ciphertext, as in QUIC (RFC 9001, 5.4). The sample
looks random and does not come twice, and so does not the mask.

Both load their keys once: loading one costs more than using it.
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
        self._cipher = hazmat.gcm_siv(_checked(key))

    def seal(self, plaintext: bytes, *, entropy: Entropy) -> bytes:
        nonce = entropy(NONCE)
        return nonce + self._cipher.encrypt(nonce, plaintext, None)

    def open(self, sealed: bytes) -> bytes:
        """Give the plaintext back; every failure is the same `ForgedError`."""
        if len(sealed) < OVERHEAD:
            raise ForgedError("the ciphertext does not open")
        return hazmat.decrypt(self._cipher, sealed[:NONCE], sealed[NONCE:], b"")


class HeaderMask:
    """Gives eight bytes for every sample, as a number to XOR with."""

    __slots__ = ("_encrypt",)

    def __init__(self, key: Secret) -> None:
        self._encrypt = hazmat.aes_blocks(_checked(key))

    def mask_for(self, sample: bytes) -> int:
        """`sample` has `SAMPLE` bytes; shorter ones would be mixed up with the next."""
        number: int = _NUMBER.unpack_from(self._encrypt(sample))[0]
        return number


def _checked(key: Secret) -> bytes:
    if len(key) != KEY:
        raise LocalError(f"the key of a veil has {KEY} bytes, not {len(key)}")
    return key.reveal()


KEY: Final = 32
NONCE: Final = 12
TAG: Final = 16
OVERHEAD: Final = NONCE + TAG
SAMPLE: Final = 16
_NUMBER: Final = Struct(">Q")

"""Ed25519 signatures, each bound to a purpose.

The signed bytes are `purpose | 0 | message`. A signature for one purpose (an advert) can therefore never be shown as
one for another (a certificate), whatever the messages are.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy


class SigningKey:
    """A private Ed25519 key. `public` may be shown, the seed may not."""

    __slots__ = ("_seed", "public")

    def __init__(self, seed: Secret) -> None:
        if len(seed) != SEED:
            raise LocalError(f"a signing seed has {SEED} bytes, not {len(seed)}")
        self._seed = seed
        self.public = hazmat.ed25519_public(seed.reveal())

    @classmethod
    def generate(cls, entropy: Entropy) -> SigningKey:
        return cls(Secret(entropy(SEED)))

    @property
    def seed(self) -> Secret:
        return self._seed

    def sign(self, message: bytes, *, purpose: bytes) -> bytes:
        return hazmat.ed25519_sign(self._seed.reveal(), self.public, _bound(purpose, message))

    def __repr__(self) -> str:
        return "<SigningKey>"


def verify(public: bytes, message: bytes, signature: bytes, *, purpose: bytes) -> None:
    """Raise `ForgedError` unless the signature holds."""
    if len(public) != PUBLIC or len(signature) != SIGNATURE:
        raise ForgedError("the signature does not hold")
    hazmat.ed25519_verify(public, _bound(purpose, message), signature)


def _bound(purpose: bytes, message: bytes) -> bytes:
    if not purpose or b"\0" in purpose:
        raise LocalError("a signature's purpose is a word without zero bytes")
    return purpose + b"\0" + message


SEED: Final = 32
PUBLIC: Final = 32
SIGNATURE: Final = hazmat.ED25519_SIGNATURE

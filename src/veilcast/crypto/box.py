"""A box for one reader: sealed with a fresh X25519 key to a public key, whose private half alone opens it.

Nothing in a box tells who made it, and two boxes of one content have nothing in common. The key of the seal comes from
what the two halves agree on together with both public keys, so a box is bound to its reader. `purpose` (at most 16
bytes) names the use; a box made for one does not open for another.

`context` is authenticated, not sent; both sides must name the same.

A box: public key of the maker, made for this box (32) | sealed bytes.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import seal as seals
from veilcast.crypto.agree import agree, public_of
from veilcast.crypto.derive import derive
from veilcast.crypto.noise import Keypair
from veilcast.crypto.noise_patterns import KEY_SIZE
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy


def box(public: bytes, plaintext: bytes, *, purpose: bytes, entropy: Entropy, context: bytes = b"") -> bytes:
    """Close it for the holder of this key's private half; `MalformedError` if it is no key."""
    private = Secret(entropy(KEY_SIZE))
    maker = public_of(private)
    key = derive(agree(private, public), purpose, maker, public)
    return maker + seal(key, plaintext, context=purpose + context, entropy=entropy)


def unbox(reader: Keypair, boxed: bytes, *, purpose: bytes, context: bytes = b"") -> bytes:
    """Give the plaintext back; every failure is the same `ForgedError`."""
    maker = boxed[:KEY_SIZE]
    try:
        key = derive(Secret(reader.agree(maker)), purpose, maker, reader.public)
    except MalformedError as error:
        raise ForgedError("the box does not open") from error
    return unseal(key, boxed[KEY_SIZE:], context=purpose + context)


OVERHEAD: Final = KEY_SIZE + seals.OVERHEAD

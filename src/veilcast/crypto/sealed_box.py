"""A box for one reader: HPKE (RFC 9180) to a public key, whose private half alone opens it.

Nothing in a box tells its maker, and two boxes of one content have nothing in common. `purpose` (at most 16 bytes) is
HPKE's `info`: a box made for one purpose does not open for another. `context` is its associated data: authenticated,
not sent; both sides must name the same.

The ephemeral key comes from the entropy together with all that is sealed. If a machine ever draws the same bytes twice
(a clone, a poor generator), an observer sees that the same content was sealed twice for one reader, and nothing else;
with the entropy alone, two contents would share a key stream.

A box: version (1) | ephemeral public key (32) | ciphertext | tag (16). Version 1, of a construction of its own, began
with the key; no reader opens it any more.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import hpke
from veilcast.crypto.derive import derive
from veilcast.crypto.noise import Keypair
from veilcast.crypto.noise_patterns import KEY_SIZE
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy


def box(public: bytes, plaintext: bytes, *, purpose: bytes, entropy: Entropy, context: bytes = b"") -> bytes:
    """Close it for the holder of this key's private half; `MalformedError` if it is no key."""
    if len(public) != KEY_SIZE:
        raise MalformedError("not a usable X25519 public key")
    material = derive(Secret(entropy(KEY_SIZE)), b"vc/box", public, purpose, context, plaintext)
    ephemeral = hpke.derive_keypair(material)
    return _FIRST + hpke.seal_base(ephemeral, public, plaintext, info=purpose, aad=_FIRST + context)


def unbox(reader: Keypair, boxed: bytes, *, purpose: bytes, context: bytes = b"") -> bytes:
    """Give the plaintext back; every failure is the same `ForgedError`."""
    if len(boxed) < OVERHEAD or not boxed.startswith(_FIRST):
        raise ForgedError("the box does not open")
    return hpke.open_base(reader, boxed[1:], info=purpose, aad=_FIRST + context)


VERSION: Final = 2
_FIRST: Final = bytes((VERSION,))
OVERHEAD: Final = 1 + hpke.OVERHEAD

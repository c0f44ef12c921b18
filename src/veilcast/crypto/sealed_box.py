"""Boxes for one recipient: HPKE (RFC 9180) to a public key. Only the holder of the private key opens a box.

Nothing in a box tells who made it, and two boxes of one content have nothing in common. `purpose` (at most 16 bytes) is
HPKE's `info`: a box for one purpose does not open for another. `context` is the associated data: it is authenticated
and not sent, and both sides must name the same.

Claim: if a machine draws the same entropy twice (a clone, a poor generator), an observer learns only that the same
content was sealed twice for one recipient.
Reason: the ephemeral key is derived from the entropy and from everything that is sealed. With the entropy alone, two
contents would share a key stream.

Format of a box: version (1) | ephemeral public key (32) | ciphertext | tag (16). Version 1 was another construction
that began with the key. No reader opens version 1 any more.
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
    """Seal for the holder of the private key. Raises `MalformedError` if `public` is not a usable public key."""
    if len(public) != KEY_SIZE:
        raise MalformedError("not a usable X25519 public key")
    material = derive(Secret(entropy(KEY_SIZE)), b"vc/box", public, purpose, context, plaintext)
    ephemeral = hpke.derive_keypair(material)
    return _FIRST + hpke.seal_base(ephemeral, public, plaintext, info=purpose, aad=_FIRST + context)


def unbox(reader: Keypair, boxed: bytes, *, purpose: bytes, context: bytes = b"") -> bytes:
    """The plaintext. Every failure is the same `ForgedError`."""
    if len(boxed) < OVERHEAD or not boxed.startswith(_FIRST):
        raise ForgedError("the box does not open")
    return hpke.open_base(reader, boxed[1:], info=purpose, aad=_FIRST + context)


VERSION: Final = 2
_FIRST: Final = bytes((VERSION,))
OVERHEAD: Final = 1 + hpke.OVERHEAD

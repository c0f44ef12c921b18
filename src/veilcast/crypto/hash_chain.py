"""Hash chains: a hop counter that nobody can lower (P1, section 2.1).

An advert carries a value h, and each forwarder sends H(h) on. Two values belong to one chain if hashing leads from one
to the other, and the earlier one was nearer to the origin. Nobody can invert H, so no forwarder can claim to be nearer
than it is.

Paper: values stand alone. To compare two values costs up to 2 d_max hashes for every stored value, and any node may
start a fresh chain for a token that it saw.

Hardened: the origin walks the chain to its end first, and signs that end, the `Anchor`, with an expiry. A value is
placed by walking it to the anchor once, with at most `length` hashes. One look-up of the anchor tells chains apart, and
unsigned or stale chains never enter a table. The walk shows the distance from the origin, so in `hardened` the origin
is an independent root and never the publisher.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Entropy


def start_chain(entropy: Entropy) -> bytes:
    """A fresh first value."""
    return entropy(VALUE)


def advance_chain(value: bytes, steps: int = 1) -> bytes:
    """Hash forward: the value that is `steps` hops further from the origin."""
    for _ in range(steps):
        value = hazmat.blake2s(value, size=VALUE, person=b"vc/chain")
    return value


def hops_between(first: bytes, second: bytes, d_max: int) -> int | None:
    """How many hops `second` is further than `first` (negative: nearer).

    None if they are not on one chain within d_max hops.
    """
    forward, backward = first, second
    for distance in range(d_max + 1):
        if forward == second:
            return distance
        if backward == first:
            return -distance
        forward, backward = advance_chain(forward), advance_chain(backward)
    return None


class Anchor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The signed end of a chain of `length` hops, for one token, until `expires_us`."""

    end: bytes
    length: int
    expires_us: int
    signature: bytes

    def __post_init__(self) -> None:
        if len(self.end) != VALUE or len(self.signature) != SIGNATURE:
            raise MalformedError("an anchor's field has the wrong size")
        if not 1 <= self.length <= LENGTH_MAX or not 0 <= self.expires_us < 1 << 63:
            raise MalformedError("an anchor's length or expiry is out of bounds")

    def verify(self, signer: bytes, token: bytes, now: int) -> None:
        """Raise unless `signer` signed this anchor for `token`, and it has not expired."""
        if now >= self.expires_us:
            raise StaleError("the chain's anchor has expired")
        verify(signer, encode_anchor(token, self.end, self.length, self.expires_us), self.signature, purpose=_PURPOSE)

    def hops_from_origin(self, value: bytes) -> int:
        """The number of hops from the origin to `value`. Raises `ForgedError` if the value is not on this chain."""
        for left in range(self.length + 1):
            if value == self.end:
                return self.length - left
            value = advance_chain(value)
        raise ForgedError("the value is not on the anchored chain")


def sign_anchor(first: bytes, length: int, token: bytes, expires_us: int, key: SigningKey) -> Anchor:
    """Sign the end of the chain that starts at `first`. Adverts for `token` may then travel `length` hops."""
    if not 1 <= length <= LENGTH_MAX:
        raise LocalError(f"a chain has 1 to {LENGTH_MAX} hops, not {length}")
    end = advance_chain(first, length)
    signature = key.sign(encode_anchor(token, end, length, expires_us), purpose=_PURPOSE)
    return Anchor(end, length, expires_us, signature)


def encode_anchor(token: bytes, end: bytes, length: int, expires_us: int) -> bytes:
    return bytes((len(token),)) + token + end + bytes((length,)) + expires_us.to_bytes(8, "big")


VALUE: Final = 32
LENGTH_MAX: Final = 64
_PURPOSE: Final = b"veilcast/anchor"

"""A lottery that nobody can rig: each member has one lot for each subject, and a proof of it that is also a signature.

The computation on `group` is pure; randomness is handed in. The lot of key x for a subject s is the point x H(s): a
verifiable random function in the manner of RFC 9381. Without x the lot looks random; with x there is only one. The
proof is that of Chaum and Pedersen: the lot is to H(s) as the public key is to the generator, and no other point has
such a proof. A statement takes part in the proof's challenge, so the proof is also the winner's signature of that
statement.

Claim: a member cannot search for a key whose lots win.
Assumption: no member can predict the authority's signature on the certificate of its key.
Reason: lots are compared by a hash of the lot and of that signature. Every certificate is one more ticket, so the
authority limits the number of tickets.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import POINT_SIZE, SCALAR_SIZE, WIDE_SIZE, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy


def derive_lot_key(link: Secret) -> Scalar:
    """A member's key for its lots, derived from its link key.

    There is nothing more to store, and neither key reveals the other.
    """
    return Scalar.reduce(derive(link, b"vc/lot-key", size=WIDE_SIZE).reveal())


def public_of(key: Scalar) -> bytes:
    return key.public().encode()


def draw_lot(key: Scalar, subject: bytes) -> bytes:
    """The only lot that this key has for the subject."""
    return (_base(subject) * key).encode()


def prove_lot(key: Scalar, subject: bytes, statement: bytes, entropy: Entropy) -> bytes:
    """A proof of `draw_lot(key, subject)` that signs the statement.

    Two proofs with one nonce would reveal the key. The nonce is therefore a hash of the key and of everything that is
    proven; the entropy only adds to it, and may be bad.
    """
    base = _base(subject)
    lot = base * key
    wide = derive(key, b"vc/lot-nonce", entropy(SCALAR_SIZE), subject, statement, size=WIDE_SIZE)
    nonce = Scalar.reduce(wide.reveal())
    challenge = _challenge(key.public(), subject, lot, nonce.public(), base * nonce, statement)
    return challenge.reveal() + (nonce + challenge * key).reveal()


def check_lot(public: bytes, subject: bytes, lot: bytes, statement: bytes, proof: bytes) -> None:
    """Raise unless `lot` is the lot of this public key for the subject, and the key's holder signed the statement."""
    if len(proof) != PROOF:
        raise MalformedError(f"a proof of a lot has {PROOF} bytes")
    key, drawn = Point(public), Point(lot)
    challenge, response = Scalar(proof[:SCALAR_SIZE]), Scalar(proof[SCALAR_SIZE:])
    commitment = response.public() - key * challenge
    on_base = _base(subject) * response - drawn * challenge
    if _challenge(key, subject, drawn, commitment, on_base, statement) != challenge:
        raise ForgedError("the proof of the lot does not hold")


def rank_lot(lot: bytes, seal: bytes) -> int:
    """The number that is compared, below 2^64; the smallest wins.

    `seal` is the signature on the certificate of the lot's key.
    """
    return int.from_bytes(digest(lot + seal, purpose=b"vc/lot-rank", size=8), "big")


def _base(subject: bytes) -> Point:
    return Point.hash(subject, b"vc/lot")


def _challenge(key: Point, subject: bytes, lot: Point, commitment: Point, on_base: Point, statement: bytes) -> Scalar:
    """A hash of all public values.

    Only subject and statement vary in size, and the length of the subject is hashed too.
    """
    points = b"".join(point.encode() for point in (key, lot, commitment, on_base))
    message = points + len(subject).to_bytes(4, "big") + subject + statement
    return Scalar.reduce(hazmat.blake2b(message, size=WIDE_SIZE, person=b"vc/lot-proof"))


LOT: Final = POINT_SIZE
PUBLIC: Final = POINT_SIZE
PROOF: Final = 2 * SCALAR_SIZE

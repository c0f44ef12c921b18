"""CPace: two parties that share a short password agree on a strong key.

From draft-irtf-cfrg-cpace-21, with the group ristretto255 and the hash SHA-512.

1. Both hash the password, the channel and the session to a generator G of the group. Nobody knows the logarithm of one
   generator to the base of another.
2. Each draws a scalar y and sends its share Y = y G. Both compute K = y_a y_b G, and hash K with the transcript: the
   intermediate session key (ISK).
3. A share is a uniform point whatever the password is, so an observer learns nothing, and cannot try passwords
   afterwards. A party that takes part with a wrong generator computes another K. It has tried one password, and one run
   gives it no second try.

The ISK proves nothing yet: the parties confirm it by messages under keys derived from it, and the party that shows such
a message first gives the other one its try. Initiator and responder are fixed beforehand (`transcript_ir`). The group's
library is rbcl, as elsewhere in `group`. Section numbers are the draft's; `tests/vectors/cpace` has its appendix B.3.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.group import POINT_SIZE, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Entropy


class CpaceRun:
    """One party's part in one run: it sends `share`, and computes the key from the other party's share, once."""

    __slots__ = ("_scalar", "_session", "share")

    def __init__(self, password: Secret, *, channel: bytes, session: bytes, entropy: Entropy) -> None:
        """`channel` and `session` are public, and the same for both parties."""
        self._scalar: Scalar | None = Scalar.draw(entropy)
        self._session = session
        self.share: Final = (derive_generator(password, channel, session) * self._scalar).encode()

    def finish_as_initiator(self, theirs: bytes, *, about: bytes, about_them: bytes) -> Secret:
        """The ISK. `about` and `about_them` are the associated data of the two shares. Raises `MalformedError` if
        `theirs` is no share."""
        shared = self._agree(theirs)
        return _derive_isk(self._session, shared, (self.share, about), (theirs, about_them))

    def finish_as_responder(self, theirs: bytes, *, about: bytes, about_them: bytes) -> Secret:
        shared = self._agree(theirs)
        return _derive_isk(self._session, shared, (theirs, about_them), (self.share, about))

    def _agree(self, theirs: bytes) -> Point:
        """`scalar_mult_vfy` (section 7.2). The scalar is gone afterwards, whatever the other party sent."""
        if self._scalar is None:
            raise LocalError("this run of CPace is over; begin another")
        scalar, self._scalar = self._scalar, None
        return Point(theirs) * scalar


def derive_generator(password: Secret, channel: bytes, session: bytes) -> Point:
    """`calculate_generator` (section 8.3): the password, padded to a block of the hash, and what it is used for."""
    known = _join(_NAME, password.reveal())
    padding = bytes(max(0, _BLOCK - len(known) - 1))
    return Point.map(hazmat.digest("sha512", known + _join(padding, channel, session)))


def _derive_isk(session: bytes, shared: Point, first: tuple[bytes, bytes], second: tuple[bytes, bytes]) -> Secret:
    """The hash of the agreed point and of both messages, the initiator's first (section 7.2)."""
    whole = _join(_NAME + b"_ISK", session, shared.encode()) + _join(*first) + _join(*second)
    return Secret(hazmat.digest("sha512", whole))


def _join(*parts: bytes) -> bytes:
    """`lv_cat` (appendix A.1): each part with its length before it, in base 128, the lowest digit first."""
    joined = b""
    for part in parts:
        length = len(part)
        while length >= 0x80:
            joined += bytes((length & 0x7F | 0x80,))
            length >>= 7
        joined += bytes((length,)) + part
    return joined


SHARE_SIZE: Final = POINT_SIZE
_NAME: Final = b"CPaceRistretto255"
_BLOCK: Final = 128
"""Bytes of one block of SHA-512."""

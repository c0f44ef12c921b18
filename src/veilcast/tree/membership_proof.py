"""Proofs: that the sender of a request is a member, and nothing of which one.

Pure. All members share the network's key, and a proof is a hash under a key that comes from it. So nobody outside can
fill tables or make others work; a member can, within the limits of each node, and cannot be told from any other: a
proof that named the sender would name the subscriber.
"""

from __future__ import annotations

import hmac
from typing import Final, TypeVar

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.crypto.derive import derive
from veilcast.errors import ForgedError
from veilcast.wire.tree import EnrolNode, FetchListing, Groups, Install, Offer

Request = TypeVar("Request", Install, Offer, EnrolNode, FetchListing)


def bundle_context(until_us: int, groups: Groups) -> bytes:
    """What instructions are bound to that stands beside them: whoever hands them on cannot change it."""
    return _ENCODER.encode((until_us, groups))


class MembershipProver:
    """For the members of one network."""

    def __init__(self, keyring: Keyring) -> None:
        self._key = derive(keyring.membership.network, b"vc/tree-member")

    def prove(self, request: Request) -> Request:
        """The same request, with its proof."""
        return msgspec.structs.replace(request, proof=self._proof(request))

    def check(self, request: Install | Offer | EnrolNode | FetchListing) -> None:
        if request.proof is None or not hmac.compare_digest(request.proof, self._proof(request)):
            raise ForgedError("no member sends this")

    def _proof(self, request: Install | Offer | EnrolNode | FetchListing) -> bytes:
        """Of all but the number, which is the stream's."""
        plain = msgspec.structs.replace(request, number=0, proof=None)
        return derive(self._key, _PURPOSES[type(request)], _ENCODER.encode(plain)).reveal()


_PURPOSES: Final[dict[type, bytes]] = {
    Install: b"vc/tree-install",
    Offer: b"vc/tree-offer",
    EnrolNode: b"vc/tree-enrol",
    FetchListing: b"vc/tree-fetch",
}
_ENCODER: Final = msgspec.msgpack.Encoder()

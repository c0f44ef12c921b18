"""Membership proofs: show that the sender of a request is a member, and not which one.

Pure. All members share the network's key, and a proof is a hash under a key derived from it. So no outsider can fill
tables or make nodes work. A member can, within the limits of each node, and cannot be told from any other member: a
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
    """The data beside the instructions that they are bound to: a node that passes them on cannot change it."""
    return _ENCODER.encode((until_us, groups))


class MembershipProver:
    """Serves the members of one network."""

    def __init__(self, keyring: Keyring) -> None:
        self._key = derive(keyring.membership.network, b"vc/tree-member")

    def prove(self, request: Request) -> Request:
        """The same request, with its proof."""
        return msgspec.structs.replace(request, proof=self._proof(request))

    def check(self, request: Install | Offer | EnrolNode | FetchListing) -> None:
        if request.proof is None or not hmac.compare_digest(request.proof, self._proof(request)):
            raise ForgedError("the proof of membership is missing or wrong")

    def _proof(self, request: Install | Offer | EnrolNode | FetchListing) -> bytes:
        """Covers all fields except the number, which belongs to the stream."""
        plain = msgspec.structs.replace(request, number=0, proof=None)
        return derive(self._key, _PURPOSES[type(request)], _ENCODER.encode(plain)).reveal()


_PURPOSES: Final[dict[type, bytes]] = {
    Install: b"vc/tree-install",
    Offer: b"vc/tree-offer",
    EnrolNode: b"vc/tree-enrol",
    FetchListing: b"vc/tree-fetch",
}
_ENCODER: Final = msgspec.msgpack.Encoder()

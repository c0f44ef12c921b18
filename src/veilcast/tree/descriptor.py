"""Descriptors: what a node says of itself to be listed.

Pure. A node says where it can be reached, and the key that instructions for it are to be sealed with, which is the link
key that its membership certifies: nobody can open them in its place, whoever wrote the list. It signs that under its
own name (`authority.statement`), with the time. So an old descriptor that somebody plays again is known for one, and
neither moves a node nor keeps one listed that is gone.

An onion address is proven: the node also signs with the key of the onion service. So no member sends the streams of all
others to an onion service that is not its own. Other addresses are not proven; they serve without Tor only, for a node
calls nothing but onion services through Tor.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import derive_onion_key
from veilcast.authority.statement import StatementReader, StatementSignature, sign_statement
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.onion_keys import SUFFIX, check_host_signature
from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire.tree import EnrolNode


def build_descriptor(keyring: Keyring, address: Address, number: int, now: int, since_us: int = 0) -> EnrolNode:
    """The request to be listed at this address, by a node that was started at `since_us`."""
    box = public_of(keyring.membership.link)
    body = _body(address, box, since_us, now)
    signed = sign_statement(keyring, body, purpose=_PURPOSE)
    onion = derive_onion_key(keyring.membership.link)
    holds = onion.sign(body, purpose=_HOLDS) if _host(address) == onion.host else None
    enrol = EnrolNode(number, address, box, since_us, now, signed.certificates, signed.signature, holds)
    return MembershipProver(keyring).prove(enrol)


def check_descriptor(enrol: EnrolNode, reader: StatementReader, now: int) -> bytes:
    """The key of the authority that certified the node.

    Raises `RemoteError` unless a member says this of itself and holds the onion service that it names.
    """
    body = _body(enrol.address, enrol.box, enrol.since_us, enrol.issued_us)
    signed = StatementSignature(enrol.certificates, enrol.signature)
    author = reader.verify_author(body, signed, "member", now, purpose=_PURPOSE)
    if author.name != fingerprint(enrol.box):
        raise ForgedError("a node's box is closed with the key of its membership")
    if _host(enrol.address).endswith(SUFFIX):
        if enrol.holds is None:
            raise ForgedError("nothing shows that the node holds this onion service")
        check_host_signature(_host(enrol.address), body, enrol.holds, purpose=_HOLDS)
    return author.issuer


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _body(address: str, box: bytes, since_us: int, issued_us: int) -> bytes:
    return _ENCODER.encode((address, box, since_us, issued_us))


AHEAD_US: Final = 10_000_000
"""How far a node's clock may be ahead of the directory's. A descriptor of a later time is refused: it would be newer
than all that its node signs until then."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_PURPOSE: Final = b"veilcast/tree-node"
_HOLDS: Final = b"veilcast/tree-onion"

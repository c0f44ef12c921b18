"""Descriptors: a node's signed request to be listed.

Pure. A descriptor states the node's address and the key that seals instructions for it. That key is the link key that
the node's membership certifies: no other party can open the instructions, not even the author of the listing. The node
signs the descriptor with a time, under its own name (`authority.statement`). So the directory recognises a replayed
descriptor. A replay neither moves a node nor keeps a departed node listed.

An onion address is proven: the node also signs with the key of the onion service. So no member can direct the streams
of all others to an onion service that it does not own. Other addresses are not proven. They work without Tor only,
because a node opens only onion services through Tor.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, StatementSignature, sign_statement
from veilcast.authority.role import derive_onion_key
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
    """Returns the key of the authority that certified the node.

    Raises `RemoteError` unless a member describes itself and owns the onion service that it names.
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
"""How far a node's clock may be ahead of the directory's. The directory refuses a later descriptor: it would be
newer than all descriptors that the node signs until then.
"""
_ENCODER: Final = msgspec.msgpack.Encoder()
_PURPOSE: Final = b"veilcast/tree-node"
_HOLDS: Final = b"veilcast/tree-onion"

"""Descriptors: what a node says of itself to be listed.

Pure. A node says where it can be reached, and the key that instructions for it are to be sealed with, which is the link
key that its membership certifies: nobody can open them in its place, whoever wrote the list. It signs that under its
own name (`authority.statement`), with the time. So an old descriptor that somebody plays again is known for one, and
neither moves a node nor keeps one listed that is gone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.statement import Reader, Signed, state
from veilcast.crypto.agree import public_of
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.wire.tree import Enrol


def describe(keyring: Keyring, address: Address, number: int, now: int, since_us: int = 0) -> Enrol:
    """The request to be listed at this address, by one who was started then."""
    box = public_of(keyring.membership.link)
    signed = state(keyring, _body(address, box, since_us, now), purpose=_PURPOSE)
    return Enrol(number, address, box, since_us, now, signed.certificates, signed.signature)


def check_descriptor(enrol: Enrol, reader: Reader, now: int) -> bytes:
    """The name of the node that this is of; raises `RemoteError` unless a member says it of itself."""
    body = _body(enrol.address, enrol.box, enrol.since_us, enrol.issued_us)
    signed = Signed(enrol.certificates, enrol.signature)
    node = reader.author(body, signed, "member", now, purpose=_PURPOSE)
    if node != fingerprint(enrol.box):
        raise ForgedError("a node's box is closed with the key of its membership")
    return node


def _body(address: str, box: bytes, since_us: int, issued_us: int) -> bytes:
    return _ENCODER.encode((address, box, since_us, issued_us))


_ENCODER: Final = msgspec.msgpack.Encoder()
_PURPOSE: Final = b"veilcast/tree-node"

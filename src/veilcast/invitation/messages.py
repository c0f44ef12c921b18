"""What the two sides of an invitation say, and the frames that carry it.

A frame is a byte that says what it is, then its fields. Frames before the key is confirmed have a fixed size. After
that, contents travel in sealed frames of at most `PIECE` bytes (`channel`).

    joiner                              inviter
      MEET  number, share   ------->
                            <-------    SHARE share
      CONFIRM tag           ------->                  the joiner shows first that it knows the password
                            <-------    SEALED InvitationOffer
      SEALED JoinRequest    ------->                  made with keys that never leave the joiner
                            <-------    SEALED JoinReply, or JoinRefusal
      SEALED JoinReceipt    ------->                  the keyring is on the joiner's disk

REFUSED is not authenticated: anyone on the way can send it, and it says only that this try is over. A rendezvous passes
frames on from MEET to the end. It also takes OPEN from an inviter, and answers OPENED.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError


class FrameKind(IntEnum):
    MEET = 1
    SHARE = 2
    CONFIRM = 3
    SEALED = 4
    REFUSED = 5
    OPEN = 6
    OPENED = 7


class Reason(IntEnum):
    """Why a side, or a rendezvous, does not go on."""

    WRONG_CODE = 1
    OVER = 2
    """The invitation was used or burned, or its time is over."""
    BUSY = 3
    """Another joiner is being served."""
    FULL = 4
    """A rendezvous takes no more invitations now."""
    UNKNOWN = 5
    """A rendezvous knows no invitation of this number."""
    FORBIDDEN = 6
    """A rendezvous takes no invitations of this authority."""


class InvitationOffer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """What the invitation is for, and all that the joiner's files need.

    `root` is the public key of the authority, to which the joiner binds its keyring: the sealed channel authenticates
    it, so nobody compares fingerprints. `network` is the part of a node's file that all members share, as TOML, and
    `files` has the files that it names.
    """

    root: Annotated[bytes, Meta(min_length=32, max_length=32)]
    epoch_us: Annotated[int, Meta(ge=1, le=1 << 50)]
    topic: Annotated[str, Meta(max_length=1024)]
    role: Annotated[str, Meta(max_length=16)]
    epochs: Annotated[int, Meta(ge=1, le=100_000)]
    now_us: Annotated[int, Meta(ge=0, le=1 << 62)]
    members: Annotated[int, Meta(ge=0, le=1 << 40)]
    """Members that the authority has granted something, the invited one included."""
    network: Annotated[str, Meta(max_length=1 << 16)]
    files: Annotated[dict[Annotated[str, Meta(max_length=64)], bytes], Meta(max_length=16)] = {}


class JoinRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """The joiner's request (`veilcast.authority.request`), and the address at which other members reach it, or ""."""

    request: bytes
    address: Annotated[str, Meta(max_length=128)] = ""


class JoinReply(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The authority's reply, sealed for the key of the request."""

    reply: bytes


class JoinRefusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Why the authority does not grant the request."""

    text: Annotated[str, Meta(max_length=400)]


class JoinReceipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """The joiner has its keyring on its disk."""


Content: TypeAlias = InvitationOffer | JoinRequest | JoinReply | JoinRefusal | JoinReceipt


def encode_content(content: Content) -> bytes:
    """Raises `LocalError` for a content that the other side would refuse."""
    data = msgspec.msgpack.encode(content)
    try:
        decode_content(data)
    except MalformedError as error:
        raise LocalError(f"an invitation cannot carry this: {error.__cause__ or error}") from error
    return data


def decode_content(data: bytes) -> Content:
    content: Content = _DECODER.decode(data)
    return content


CONTENT_MAX: Final = 2 << 20
"""Bytes of one content. The largest is the answer to a publisher: 96 bytes for each of at most 10,000 epochs."""
PIECE: Final = 32 << 10
"""Bytes of a content in one sealed frame."""
_DECODER: Final = MsgpackDecoder(Content, MalformedError, "not a content of an invitation", CONTENT_MAX)

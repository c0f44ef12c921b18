"""The messages of the tree (P2 section 4.2), of both profiles, frozen and bounded as those of the other modes are.

Nodes speak through an anonymous network: whoever gets a message can answer on the stream that it came by, and knows
nothing else of its sender. Every request is answered by `RequestAck`, by `RequestRefused`, or by what was asked for,
under its
number, which counts on its stream only; it may be repeated until then, and does nothing twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.derive import fingerprint
from veilcast.wire import geometry as g
from veilcast.wire.mesh import Counter, Message, Moment, Name, Proof, Signature

NodeId: TypeAlias = Annotated[bytes, Meta(min_length=g.NODE, max_length=g.NODE)]
BoxKey: TypeAlias = Annotated[bytes, Meta(min_length=g.PUBLIC_KEY, max_length=g.PUBLIC_KEY)]
EntryId: TypeAlias = Annotated[bytes, Meta(min_length=g.ENTRY, max_length=g.ENTRY)]
MessageId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=g.DIGEST, max_length=g.DIGEST)]
Certificates: TypeAlias = Annotated[
    tuple[Annotated[bytes, Meta(min_length=1, max_length=g.CERTIFICATE_MAX)], ...], Meta(min_length=1, max_length=2)
]
"""Of who signed it: its own, and that of a sub-authority that gave it."""
Element: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.ELEMENT_MAX)]
"""A tag in `hardened`; in `paper` the element itself, behind its topic's name."""
Groups: TypeAlias = Annotated[
    tuple[Annotated[tuple[Element, ...], Meta(max_length=g.SUBJECTS_MAX)], ...], Meta(max_length=g.GROUPS_MAX)
]
Labels: TypeAlias = Annotated[bytes, Meta(min_length=g.LABELS, max_length=g.LABELS)]
Body: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.RELAYED_MAX)]


class RefusalCode(IntEnum):
    """Why a request was refused."""

    FULL = 1
    """There is no room; there may be later."""
    LIMITED = 2
    """More than one stream, or all together, are given."""
    MALFORMED = 3
    """Not a request that could ever be granted."""
    UNKNOWN = 4
    """It rests on something that is not known here (any more): an entry, or a version of the listing."""


class ListedNode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node as the directory lists it until `until_us`, in the life that it began at `since_us`, or in which it came.
    Instructions for it are sealed with `box`.

    That is the key which its membership is certified for, and the node's name is the key's fingerprint: a directory
    can leave a node out, and say that it is somewhere else, but nobody can open in its place what is sealed for it.
    """

    address: Name
    box: BoxKey
    since_us: Moment
    until_us: Moment

    @property
    def node(self) -> bytes:
        return fingerprint(self.box)


class EnrolNode(Message, frozen=True):
    """A node to the directory: list me, at this address, from now on for one lease. Signed by the certified member.

    `box` is the key of its membership, and `since_us` when it was started: who starts anew has forgotten what it was
    told. Of two enrolments the one that was issued later counts. `holds` is a signature with the key of the onion
    service at `address`, and nil where the address is no onion service. `proof` shows knowledge of the network key.
    """

    number: Counter
    address: Name
    box: BoxKey
    since_us: Moment
    issued_us: Moment
    certificates: Certificates
    signature: Signature
    holds: Signature | None = None
    proof: Proof | None = None


class NodeEnrolled(Message, frozen=True):
    """You are listed until then; enrol anew before."""

    number: Counter
    until_us: Moment


class FetchListing(Message, frozen=True):
    """To the directory: a page of this version of the listing; with no page, the head of the newest.

    `proof` shows knowledge of the network key: the listing is for members.
    """

    number: Counter
    version: Moment
    page: Annotated[int, Meta(ge=0, le=g.PAGES_MAX - 1)] | None
    proof: Proof | None = None


class ListingHead(Message, frozen=True):
    """How many nodes are listed, in which version, until when, and the digest of each page; signed by the directory.

    A version is named by the moment it was made at, so that a later one has a higher name.
    """

    number: Counter
    version: Moment
    until_us: Moment
    count: Annotated[int, Meta(ge=0, le=g.LISTED_MAX)]
    pages: Annotated[tuple[Digest, ...], Meta(max_length=g.PAGES_MAX)]
    certificates: Certificates
    signature: Signature


class ListingPage(Message, frozen=True):
    """So many nodes, in the order of their names; all pages but the last are full."""

    number: Counter
    version: Moment
    page: Annotated[int, Meta(ge=0, le=g.PAGES_MAX - 1)]
    nodes: Annotated[tuple[ListedNode, ...], Meta(min_length=1, max_length=g.PAGE_NODES)]


class Install(Message, frozen=True):
    """Instructions for a node and those behind it, of one tree: what is wanted, until when, and the sealed layers.

    In `hardened` the sealed part has one size, and `proof` shows that a member made it. In `paper` there is no proof;
    with `removes` the instructions are to be taken back.
    """

    number: Counter
    until_us: Moment
    groups: Groups
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BUNDLE_MAX)]
    proof: Proof | None = None
    removes: bool = False


class Offer(Message, frozen=True):
    """A publication for its origin, who matches it. In `paper` it goes on as it is, with the labels of its way."""

    number: Counter
    message: MessageId
    groups: Groups
    labels: Labels | None
    body: Body
    proof: Proof | None = None


class ForwardPublication(Message, frozen=True):
    """A publication on its way, for one entry of a node's table; `hardened` only."""

    number: Counter
    entry: EntryId
    message: MessageId
    body: Body


class RequestAck(Message, frozen=True):
    """I have what you sent under this number, and will do with it what is to be done."""

    number: Counter


class RequestRefused(Message, frozen=True):
    """I will do nothing about what you sent under this number."""

    number: Counter
    code: Annotated[int, Meta(ge=int(min(RefusalCode)), le=int(max(RefusalCode)))]


# Append only.
TYPE_BYTES: Final[dict[int, type[Message]]] = {
    0x60: EnrolNode,
    0x61: NodeEnrolled,
    0x62: FetchListing,
    0x63: ListingHead,
    0x64: ListingPage,
    0x65: Install,
    0x66: Offer,
    0x67: ForwardPublication,
    0x68: RequestAck,
    0x69: RequestRefused,
}

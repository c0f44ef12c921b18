"""The messages of the tree (P2 section 4.2), of both profiles, frozen and bounded like those of the other modes.

Nodes speak through an anonymous network. A receiver can answer on the stream that a message came by, and knows nothing
else of its sender. Every request is answered by `RequestAck`, by `RequestRefused`, or by its result, under the
request's number, which counts on its stream only. A request may be repeated until then, and has no effect twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.derive import fingerprint
from veilcast.wire import geometry as g
from veilcast.wire.base import Counter, Message, Moment, Name, Proof, Signature

NodeId: TypeAlias = Annotated[bytes, Meta(min_length=g.NODE, max_length=g.NODE)]
BoxKey: TypeAlias = Annotated[bytes, Meta(min_length=g.PUBLIC_KEY, max_length=g.PUBLIC_KEY)]
EntryId: TypeAlias = Annotated[bytes, Meta(min_length=g.ENTRY, max_length=g.ENTRY)]
MessageId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=g.DIGEST, max_length=g.DIGEST)]
Certificates: TypeAlias = Annotated[
    tuple[Annotated[bytes, Meta(min_length=1, max_length=g.CERTIFICATE_MAX)], ...], Meta(min_length=1, max_length=2)
]
"""The signer's own certificate, and that of the sub-authority that issued it, if one did."""
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
    """One stream, or all streams together, have sent more than they may."""
    MALFORMED = 3
    """The request can never be granted."""
    UNKNOWN = 4
    """The request relies on something that is not known here (any more): an entry, or a version of the listing."""


class ListedNode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node as the directory lists it until `until_us`, in the life that it began, or first enrolled in, at
    `since_us`. Instructions for it are sealed with `box`.

    `box` is the key that its membership is certified for, and the node's name is the fingerprint of `box`. A directory
    can leave a node out or give a wrong address, but nobody else can open what is sealed for the node.
    """

    address: Name
    box: BoxKey
    since_us: Moment
    until_us: Moment

    @property
    def node(self) -> bytes:
        return fingerprint(self.box)


class ListingStage(IntEnum):
    """Which of a directory's listings a request is for."""

    SERVED = 1
    """The listing for nodes, with the signatures of as many directories as they need."""
    VOTE = 2
    """What one of several directories knows itself, for the other directories; with its signature alone."""
    MERGED = 3
    """What one of several directories made of the votes of all, for the others; with its signature alone."""


class DirectorySignature(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The signature of one directory on a listing, with the certificates that show its role."""

    certificates: Certificates
    signature: Signature


class EnrolNode(Message, frozen=True):
    """A node asks the directory to list it at this address, from now on for one lease. Signed by the certified member.

    `box` is the key of its membership, and `since_us` the time of its start: a node that starts again has forgotten its
    instructions. Between two enrolments, the one that was issued later counts. `holds` is a signature with the key of
    the onion service at `address`, and nil if the address is no onion service. `proof` shows knowledge of the network
    key.
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
    """The node is listed until `until_us`, and must enrol again before."""

    number: Counter
    until_us: Moment


class FetchListing(Message, frozen=True):
    """To a directory: a request for a page of this version of the listing; with no page, for its head.

    A node asks for the head of the newest listing, and the version does not count. `proof` shows knowledge of the
    network key: the listing is for members.
    """

    number: Counter
    version: Moment
    page: Annotated[int, Meta(ge=0, le=g.PAGES_MAX - 1)] | None
    proof: Proof | None = None
    stage: Annotated[int, Meta(ge=int(min(ListingStage)), le=int(max(ListingStage)))] = ListingStage.SERVED


class ListingHead(Message, frozen=True):
    """The number of listed nodes, the version, its end, and the digest of each page; signed by one directory or more.

    The name of a version is the moment at which it was made, so that a later version has a higher name.
    """

    number: Counter
    version: Moment
    until_us: Moment
    count: Annotated[int, Meta(ge=0, le=g.LISTED_MAX)]
    pages: Annotated[tuple[Digest, ...], Meta(max_length=g.PAGES_MAX)]
    signatures: Annotated[tuple[DirectorySignature, ...], Meta(min_length=1, max_length=g.DIRECTORIES_MAX)]


class ListingPage(Message, frozen=True):
    """Nodes in the order of their names. All pages but the last are full."""

    number: Counter
    version: Moment
    page: Annotated[int, Meta(ge=0, le=g.PAGES_MAX - 1)]
    nodes: Annotated[tuple[ListedNode, ...], Meta(min_length=1, max_length=g.PAGE_NODES)]


class Install(Message, frozen=True):
    """Instructions for a node and for those behind it, of one tree: the wanted elements, their end, and the sealed
    layers.

    In `hardened` the sealed part has one size, and `proof` shows that a member made it. In `paper` there is no proof;
    `removes` takes the instructions back.
    """

    number: Counter
    until_us: Moment
    groups: Groups
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BUNDLE_MAX)]
    proof: Proof | None = None
    removes: bool = False


class Offer(Message, frozen=True):
    """A publication for its origin, which matches it.

    In `paper` it travels on unchanged, with the labels of the nodes that forwarded it.
    """

    number: Counter
    message: MessageId
    groups: Groups
    labels: Labels | None
    body: Body
    proof: Proof | None = None


class ForwardPublication(Message, frozen=True):
    """A publication in transit, for one entry of a node's table; `hardened` only."""

    number: Counter
    entry: EntryId
    message: MessageId
    body: Body


class RequestAck(Message, frozen=True):
    """The sender has the request of this number, and will act on it."""

    number: Counter


class RequestRefused(Message, frozen=True):
    """The sender will not act on the request of this number."""

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

"""The messages of the relay (P2 section 4.1), of both profiles, frozen and bounded like those of the mesh.

Most of them travel twice, between client and proxy and between proxy and server, and have the same form on both hops.
Three fields change: the number, which each hop counts for itself; the name, which is the client's name of a lease on
one hop and the proxy's pseudonym for it on the other; and the subjects, which the proxy moves from under one key to
under another. The sealed part is for the far end, and the proxy forwards it unread. Every request is answered by a
`RequestReply` of its number, and may be repeated until then: no request has an effect twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from veilcast.wire import geometry as g
from veilcast.wire.base import Counter, Message, Moment

LeaseName: TypeAlias = Annotated[bytes, Meta(min_length=g.LEASE_NAME, max_length=g.LEASE_NAME)]
Ticket: TypeAlias = Annotated[bytes, Meta(min_length=g.TICKET, max_length=g.TICKET)]
Number: TypeAlias = Annotated[bytes, Meta(min_length=g.SCALAR, max_length=g.SCALAR)]
PointBytes: TypeAlias = Annotated[bytes, Meta(min_length=g.POINT, max_length=g.POINT)]
Ciphered: TypeAlias = Annotated[bytes, Meta(min_length=g.CIPHERTEXT, max_length=g.CIPHERTEXT)]
Sealed: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.RELAYED_MAX)]
Subject: TypeAlias = Annotated[bytes, Meta(min_length=g.SUBJECT_MIN, max_length=g.SUBJECT_MAX)]
SubjectGroup: TypeAlias = Annotated[tuple[Subject, ...], Meta(max_length=g.SUBJECTS_MAX)]
Subjects: TypeAlias = Annotated[tuple[SubjectGroup, ...], Meta(max_length=g.GROUPS_MAX)]
"""Subscribed or published elements as points of the group: single points in `paper`, veiled pairs in `hardened`."""


class ReplyCode(IntEnum):
    """How a request ended. The first and the last are no refusals."""

    DONE = 0
    FULL = 1
    """There is no room; there may be later."""
    LIMITED = 2
    """The client has asked for more than a client may have, or too fast."""
    MALFORMED = 3
    """The request can never be granted."""
    UNKNOWN = 4
    """The request relies on something that is not known here (any more): the sender must send that again."""
    HELD = 5
    """The proxy has taken the lease of a coming period, and passes it on by itself when its time comes."""


class EnrolClient(Message, frozen=True):
    """A client to its proxy: b / k_u, and b itself for the server alone. `claim` is k_u G, in `hardened` only."""

    number: Counter
    ratio: Number
    claim: PointBytes | None
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BOXED_SCALAR_MAX)]


class Blind(Message, frozen=True):
    """The proxy to the server, for an `EnrolClient`: it asks for the route key over this b."""

    number: Counter
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BOXED_SCALAR_MAX)]


class Blinded(Message, frozen=True):
    """The server's answer: k_r / b."""

    number: Counter
    share: Number


class Lease(Message, frozen=True):
    """The client asks for everything that has a subject of each group, until `until_us`. Sent again under the same
    name, it is the same lease.

    In `hardened` the sealed part is the key that deliveries are wrapped with. In `paper` there is none, and all
    subjects of all of a client's leases fall into one filter.
    """

    number: Counter
    name: LeaseName
    until_us: Moment
    subjects: Subjects
    sealed: Sealed | None


class LeaseAhead(Message, frozen=True):
    """A client to its proxy, for a period that has not begun: send this `Lease` to the server at a moment of your own
    between `from_us` and `to_us`."""

    number: Counter
    name: LeaseName
    from_us: Moment
    to_us: Moment
    until_us: Moment
    subjects: Subjects
    sealed: Sealed | None


class Release(Message, frozen=True):
    """The client ends this lease. The subjects, in `paper`, name the part of the filter to remove."""

    number: Counter
    name: LeaseName
    subjects: Subjects


class Resume(Message, frozen=True):
    """The sender is there: send the publications that wait under this name."""

    number: Counter
    name: LeaseName


class Submit(Message, frozen=True):
    """A publication and its subjects. `cipher` is the point that its key comes from, in `paper` only."""

    number: Counter
    subjects: Subjects
    cipher: Ciphered | None
    sealed: Sealed


class RequestReply(Message, frozen=True):
    """The result of the request of this number.

    `proof` shows that the server has taken a lease or a publication, in `hardened`: a value from the sealed part.
    """

    number: Counter
    code: Annotated[int, Meta(ge=int(min(ReplyCode)), le=int(max(ReplyCode)))]
    proof: Ticket | None = None


class RelayDelivery(Message, frozen=True):
    """A publication for these names: several from server to proxy in `paper`, one everywhere else."""

    names: Annotated[tuple[LeaseName, ...], Meta(min_length=1, max_length=g.ADDRESSEES_MAX)]
    ticket: Ticket
    cipher: Ciphered | None
    sealed: Sealed


class Receipt(Message, frozen=True):
    """The publication of this ticket is safe with its subscriber."""

    name: LeaseName
    ticket: Ticket


# Append only.
TYPE_BYTES: Final[dict[int, type[Message]]] = {
    0x40: EnrolClient,
    0x41: Blind,
    0x42: Blinded,
    0x43: Lease,
    0x44: Release,
    0x45: Resume,
    0x46: Submit,
    0x47: RequestReply,
    0x48: RelayDelivery,
    0x49: Receipt,
    0x4A: LeaseAhead,
}

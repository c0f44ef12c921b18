"""The messages of the relay (P2 section 4.1), of both profiles, frozen and bounded as those of the mesh are.

Most of them travel twice, from client to proxy and from proxy to server or back, and look alike on both ways: what
changes is the number, which each hop counts for itself; the name, by which a client knows one of its leases and the
server, as a pseudonym, the proxy's word for it; and the subjects, which the proxy moves from under one key to under
another. What is sealed is for the far end, and the proxy hands it on unread. Every request is answered by a
`RequestReply` of
its number, and may be repeated until then: none of them does anything twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from veilcast.wire import geometry as g
from veilcast.wire.mesh import Counter, Message, Moment

LeaseName: TypeAlias = Annotated[bytes, Meta(min_length=g.LEASE_NAME, max_length=g.LEASE_NAME)]
Ticket: TypeAlias = Annotated[bytes, Meta(min_length=g.TICKET, max_length=g.TICKET)]
Number: TypeAlias = Annotated[bytes, Meta(min_length=g.SCALAR, max_length=g.SCALAR)]
PointBytes: TypeAlias = Annotated[bytes, Meta(min_length=g.POINT, max_length=g.POINT)]
Ciphered: TypeAlias = Annotated[bytes, Meta(min_length=g.CIPHERTEXT, max_length=g.CIPHERTEXT)]
Sealed: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.RELAYED_MAX)]
Subject: TypeAlias = Annotated[bytes, Meta(min_length=g.SUBJECT_MIN, max_length=g.SUBJECT_MAX)]
SubjectGroup: TypeAlias = Annotated[tuple[Subject, ...], Meta(max_length=g.SUBJECTS_MAX)]
Subjects: TypeAlias = Annotated[tuple[SubjectGroup, ...], Meta(max_length=g.GROUPS_MAX)]
"""What is wanted or published, as points of the group: alone in `paper`, in veiled pairs in `hardened`."""


class ReplyCode(IntEnum):
    """How a request ended. All but the first are refusals."""

    DONE = 0
    FULL = 1
    """There is no room; there may be later."""
    LIMITED = 2
    """More than one client is given, or faster."""
    MALFORMED = 3
    """Not a request that could ever be granted."""
    UNKNOWN = 4
    """It rests on something that is not known here (any more): to be told anew."""


class EnrolClient(Message, frozen=True):
    """A client to its proxy: b / k_u, and b itself for the server alone. `claim` is k_u G, in `hardened` only."""

    number: Counter
    ratio: Number
    claim: PointBytes | None
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BOXED_SCALAR_MAX)]


class Blind(Message, frozen=True):
    """The proxy to the server, for an `EnrolClient`: what is the route key over this b?"""

    number: Counter
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.BOXED_SCALAR_MAX)]


class Blinded(Message, frozen=True):
    """The server's answer: k_r / b."""

    number: Counter
    share: Number


class Lease(Message, frozen=True):
    """Bring me what has a subject of each group, until then; again under the same name, and it is the same lease.

    In `hardened` what is sealed is the key that deliveries are to be wrapped with. In `paper` nothing is, and all
    subjects of all of a client's leases fall into one filter.
    """

    number: Counter
    name: LeaseName
    until_us: Moment
    subjects: Subjects
    sealed: Sealed | None


class Release(Message, frozen=True):
    """I want this lease no more. In `paper` the subjects say which part of the filter is to go."""

    number: Counter
    name: LeaseName
    subjects: Subjects


class Resume(Message, frozen=True):
    """Here I am: send what waits under this name."""

    number: Counter
    name: LeaseName


class Submit(Message, frozen=True):
    """A publication and its subjects. `cipher` is the point that its key comes from, in `paper` only."""

    number: Counter
    subjects: Subjects
    cipher: Ciphered | None
    sealed: Sealed


class RequestReply(Message, frozen=True):
    """What became of the request of this number.

    `proof` is the server's word that a lease or a publication is done, in `hardened`: something of what was sealed.
    """

    number: Counter
    code: Annotated[int, Meta(ge=int(min(ReplyCode)), le=int(max(ReplyCode)))]
    proof: Ticket | None = None


class RelayDelivery(Message, frozen=True):
    """A publication for these names: for one, but for several on the way from server to proxy in `paper`."""

    names: Annotated[tuple[LeaseName, ...], Meta(min_length=1, max_length=g.ADDRESSEES_MAX)]
    ticket: Ticket
    cipher: Ciphered | None
    sealed: Sealed


class Receipt(Message, frozen=True):
    """What came with this ticket is safe with its reader."""

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
}

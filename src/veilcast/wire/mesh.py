"""The messages of the mesh (P0 section 4, P1 section 2), frozen and bounded.

The type bytes at the end only ever grow: a number once used is never used for anything else. Addresses appear in
messages only where nodes must learn of one another (membership, the shell game). No message names a topic or a person.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.certificate import CertificateChain, Epoch
from veilcast.crypto.hash_chain import Anchor
from veilcast.wire import geometry as g
from veilcast.wire.base import Counter, Message, Name, Proof, Signature

Token: TypeAlias = Annotated[bytes, Meta(min_length=g.TOKEN, max_length=g.TOKEN)]
ChainValue: TypeAlias = Annotated[bytes, Meta(min_length=g.CHAIN, max_length=g.CHAIN)]
CellName: TypeAlias = Annotated[bytes, Meta(min_length=g.CELL_NAME, max_length=g.CELL_NAME)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=g.NEIGHBOURS_MAX)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=g.NONCE, max_length=g.NONCE)]
Game: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Small: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF)]


class Heartbeat(Message, frozen=True):
    """The sender is alive. Management messages ride inside, each encoded as it would be alone."""

    number: Counter
    riders: Annotated[tuple[Annotated[bytes, Meta(max_length=g.MANAGEMENT_MAX)], ...], Meta(max_length=g.HEARTBEAT_MAX)]


class Candidacy(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An elected root's membership and lot; the anchor has the proof of the lot."""

    membership: CertificateChain
    draw: Annotated[bytes, Meta(min_length=g.LOT, max_length=g.LOT)]


class Advert(Message, frozen=True):
    """The topic can be reached through the sender: (t_a, sig, cert_a, h). `anchor` is that of the hardened chain; None
    in `paper`.

    `root`: the chain begins at a root that a lottery chose, and the publisher's signature is that of its call for a
    root. `cell`: the token belongs to this cell of the certificate's topic; the same holds in calls and notifications.
    """

    token: Token
    value: ChainValue
    anchor: Anchor | None
    certificate: CertificateChain
    signature: Signature
    root: Candidacy | None = None
    cell: CellName | None = None


class Unadvert(Message, frozen=True):
    """The topic can no longer be reached through the sender."""

    token: Token
    value: ChainValue


class Subscribe(Message, frozen=True):
    """The sender wants the notifications of this token."""

    token: Token


class Unsubscribe(Message, frozen=True):
    """The sender wants no more notifications of this token."""

    token: Token


class Notify(Message, frozen=True):
    """A publication: (t_a, {m}_Ka, sig). `certificate` is the publisher's, if no advert has shown it."""

    token: Token
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.SEALED_BODY_MAX)]
    signature: Signature
    certificate: CertificateChain | None = None
    cell: CellName | None = None


class Join(Message, frozen=True):
    """SCAMP: the newcomer wants to be in the views of others. The message walks `hops` steps and ends at the contact.

    `fresh`: the newcomer is not in the network yet, and the contact offers itself for the newcomer's view.
    """

    newcomer: Name
    lease_ms: Counter
    fresh: bool
    hops: Small


class ForwardJoin(Message, frozen=True):
    """SCAMP: keep the newcomer with some probability, or pass this on. If no `hops` are left, keep it if possible."""

    newcomer: Name
    lease_ms: Counter
    hops: Small


class Keep(Message, frozen=True):
    """SCAMP: the receiver is in the view of the sender now (so that it can tell the sender when it leaves)."""

    lease_ms: Counter


class Replace(Message, frozen=True):
    """SCAMP: the sender leaves. The receiver replaces it by this neighbour, or by nobody."""

    successor: Name | None


class Invite(Message, frozen=True):
    """Probabilistic forwarding: the sender asks the receiver to be its cover for this token."""

    token: Token


class Decline(Message, frozen=True):
    """The sender will not be a cover for this token."""

    token: Token


class SwapAsk(Message, frozen=True):
    """Shell game, first phase, to the child: the sender asks to swap places, and names its other neighbours in this
    mesh.
    """

    game: Game
    token: Token
    inward: Names
    outward: Names


class SwapAnswer(Message, frozen=True):
    """First phase, from the child: it agrees and names its other neighbours, or refuses."""

    game: Game
    agreed: bool
    outward: Names


class SwapLock(Message, frozen=True):
    """First phase, to all other neighbours of the asker: stay as you are.

    `inner`: the receiver has the topic from the node that was asked.
    """

    game: Game
    token: Token
    inner: bool


class SwapVote(Message, frozen=True):
    """First phase, the answer to a lock: locked, or not."""

    game: Game
    locked: bool


class SwapCommit(Message, frozen=True):
    """Second phase: `successor` takes the sender's place in this mesh from now on."""

    game: Game
    token: Token
    successor: Name


class SwapAbort(Message, frozen=True):
    """Second phase: everything stays as it was before."""

    game: Game


class Surroundings(Message, frozen=True):
    """Shell game: the nodes near the sender, nearest first, and how many hops of the overlay each is away from it."""

    names: Annotated[tuple[Name, ...], Meta(max_length=g.NEARBY_MAX)]
    hops: Annotated[bytes, Meta(max_length=g.NEARBY_MAX)]


class BulletinPart(Message, frozen=True):
    """One part of an authority's bulletin, carried by members; each authority numbers its own."""

    authority: Annotated[bytes, Meta(min_length=g.FINGERPRINT, max_length=g.FINGERPRINT)]
    number: Counter
    index: Small
    count: Annotated[int, Meta(ge=1, le=g.PARTS_MAX)]
    data: Annotated[bytes, Meta(min_length=1, max_length=g.PART_MAX)]


class Greet(Message, frozen=True):
    """The sender does not know the receiver and holds nothing of it.

    The receiver forgets what the sender told it, and sends its adverts and subscriptions.
    """


class Call(Message, frozen=True):
    """A publisher asks for a root for this token: at the present root or, flooded, for an election."""

    token: Token
    certificate: CertificateChain
    signature: Signature
    cell: CellName | None = None


class Stem(Message, frozen=True):
    """Between a member and the root: a `Parcel`, or in the open a `Call` or `Notify`; on a random walk first, and then
    `climbing` to the root.
    """

    climbing: bool
    cargo: Annotated[bytes, Meta(min_length=1, max_length=g.CARGO_MAX)]


class Parcel(Message, frozen=True):
    """The cargo of a cover stem: sealed for the root of this token, of a usual size, and perhaps empty."""

    token: Token
    sealed: Annotated[bytes, Meta(min_length=g.PARCEL_SIZES[0] + g.BOX_OVERHEAD, max_length=g.PARCEL_SEALED_MAX)]


class StemReceipt(Message, frozen=True):
    """Back along the stem: the root has the cargo of this name, and signs this with its lot key."""

    name: Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
    receipt: Annotated[bytes, Meta(min_length=g.LOT_PROOF, max_length=g.LOT_PROOF)]


class Knock(Message, frozen=True):
    """Certified membership, to a stranger: the sender asks whether it is there, and for its certificate."""

    nonce: Nonce


class Answer(Message, frozen=True):
    """To the node that knocked: the sender's certificate, and a cookie with which the receiver is to show its own."""

    nonce: Nonce
    cookie: Nonce
    certificate: CertificateChain


class Show(Message, frozen=True):
    """To the node that answered: the sender's certificate, and the proof that it holds the key.

    `stay`: it wants a link, and not only addresses.
    """

    nonce: Nonce
    cookie: Nonce
    epoch: Epoch
    certificate: CertificateChain
    proof: Proof
    stay: bool


class Admit(Message, frozen=True):
    """To the node that has shown its certificate: the sender's proof, whether there is a link now, and some addresses
    of others.
    """

    nonce: Nonce
    proof: Proof
    linked: bool
    names: Annotated[tuple[Name, ...], Meta(max_length=g.SHARED_ADDRESSES_MAX)]


# Append only.
TYPE_BYTES: Final[dict[int, type[Message]]] = {
    1: Heartbeat,
    2: Advert,
    3: Unadvert,
    4: Subscribe,
    5: Unsubscribe,
    6: Notify,
    7: Join,
    8: ForwardJoin,
    9: Keep,
    10: Replace,
    11: Invite,
    12: Decline,
    13: SwapAsk,
    14: SwapAnswer,
    15: SwapLock,
    16: SwapVote,
    17: SwapCommit,
    18: SwapAbort,
    19: BulletinPart,
    20: Greet,
    21: Call,
    22: Stem,
    23: StemReceipt,
    24: Knock,
    25: Answer,
    26: Show,
    27: Admit,
    28: Surroundings,
    29: Parcel,
}

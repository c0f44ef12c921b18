"""The messages of the mesh (P0 section 4, P1 section 2), frozen and bounded.

A message is a value: it cannot be changed, and none can be sent or received whose fields break a bound (`codec` checks
both ways). Sizes come from `geometry`. The type bytes at the end only ever grow: a number once used is never used for
anything else. Addresses appear in messages only where nodes must learn of one another (membership, the shell game); no
message names a topic or a person.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.certificate import CertificateChain, Epoch
from veilcast.crypto.hash_chain import Anchor
from veilcast.wire import geometry as g


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of every message."""


Token: TypeAlias = Annotated[bytes, Meta(min_length=g.TOKEN, max_length=g.TOKEN)]
ChainValue: TypeAlias = Annotated[bytes, Meta(min_length=g.CHAIN, max_length=g.CHAIN)]
Signature: TypeAlias = Annotated[bytes, Meta(min_length=g.SIGNATURE, max_length=g.SIGNATURE)]
CellName: TypeAlias = Annotated[bytes, Meta(min_length=g.CELL_NAME, max_length=g.CELL_NAME)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=g.ADDRESS_MAX)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=g.NEIGHBOURS_MAX)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=g.NONCE, max_length=g.NONCE)]
Proof: TypeAlias = Annotated[bytes, Meta(min_length=g.PROOF, max_length=g.PROOF)]
Game: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Small: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF)]
Counter: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Moment: TypeAlias = Annotated[int, Meta(ge=0, le=g.MOMENT_MAX)]


class Heartbeat(Message, frozen=True):
    """The neighbour lives; management messages ride inside, each encoded as it would be alone."""

    number: Counter
    riders: Annotated[tuple[Annotated[bytes, Meta(max_length=g.MANAGEMENT_MAX)], ...], Meta(max_length=g.HEARTBEAT_MAX)]


class Candidacy(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an elected root shows: who it is, and what it drew; the proof of the draw stands in the anchor."""

    membership: CertificateChain
    draw: Annotated[bytes, Meta(min_length=g.LOT, max_length=g.LOT)]


class Advert(Message, frozen=True):
    """A topic can be had this way: (t_a, sig, cert_a, h). `anchor` is the hardened chain's; None in `paper`.

    `root`: the chain begins at one whom a lottery chose, and what the publisher signed is its call for one. `cell`: the
    token is of this cell of the topic that the certificate is for; as in calls and notes.
    """

    token: Token
    value: ChainValue
    anchor: Anchor | None
    certificate: CertificateChain
    signature: Signature
    root: Candidacy | None = None
    cell: CellName | None = None


class Unadvert(Message, frozen=True):
    """This way to the topic is gone."""

    token: Token
    value: ChainValue


class Subscribe(Message, frozen=True):
    """Send me what comes for this token."""

    token: Token


class Unsubscribe(Message, frozen=True):
    """Send me nothing more for this token."""

    token: Token


class Notify(Message, frozen=True):
    """A publication: (t_a, {m}_Ka, sig). `certificate` is the publisher's, where no advert has told it."""

    token: Token
    sealed: Annotated[bytes, Meta(min_length=1, max_length=g.SEALED_BODY_MAX)]
    signature: Signature
    certificate: CertificateChain | None = None
    cell: CellName | None = None


class Join(Message, frozen=True):
    """SCAMP: somebody wants to be in others' views. This walks `hops` steps; where it ends is the contact.

    `fresh`: the newcomer is not in the network yet, and the contact is to offer itself for its view.
    """

    newcomer: Name
    lease_ms: Counter
    fresh: bool
    hops: Small


class ForwardJoin(Message, frozen=True):
    """SCAMP: keep the newcomer with some probability, or pass this on; with no `hops` left, keep it if you can."""

    newcomer: Name
    lease_ms: Counter
    hops: Small


class Keep(Message, frozen=True):
    """SCAMP: you are in my view now (so that you can tell me when you leave)."""

    lease_ms: Counter


class Replace(Message, frozen=True):
    """SCAMP: I leave; put this neighbour of mine in my place, or nobody."""

    successor: Name | None


class Invite(Message, frozen=True):
    """Probabilistic forwarding: be my cover for this token."""

    token: Token


class Decline(Message, frozen=True):
    """I will not: no cover for this token."""

    token: Token


class SwapAsk(Message, frozen=True):
    """Shell game, first phase, to the child: change places with me; these are the others next to me in this mesh."""

    game: Game
    token: Token
    inward: Names
    outward: Names


class SwapAnswer(Message, frozen=True):
    """First phase, from the child: agreed, and these are mine, besides you; or refused."""

    game: Game
    agreed: bool
    outward: Names


class SwapLock(Message, frozen=True):
    """First phase, to all others next to the asker: hold still. `inner` if it has the topic from the one it asks."""

    game: Game
    token: Token
    inner: bool


class SwapVote(Message, frozen=True):
    """First phase, from them: locked, or not."""

    game: Game
    locked: bool


class SwapCommit(Message, frozen=True):
    """Second phase: where the sender stood in this mesh, `successor` stands from now on."""

    game: Game
    token: Token
    successor: Name


class SwapAbort(Message, frozen=True):
    """Second phase: as if nothing had been."""

    game: Game


class BulletinPart(Message, frozen=True):
    """One part of an authority's bulletin, carried by members; each authority counts its own."""

    authority: Annotated[bytes, Meta(min_length=g.FINGERPRINT, max_length=g.FINGERPRINT)]
    number: Counter
    index: Small
    count: Annotated[int, Meta(ge=1, le=g.PARTS_MAX)]
    data: Annotated[bytes, Meta(min_length=1, max_length=g.PART_MAX)]


class Greet(Message, frozen=True):
    """You are new to me, and I hold nothing of yours: forget what I told you, and tell me your adverts and wishes."""


class Call(Message, frozen=True):
    """A publisher asks for a root for this token: to the one there is, or, flooded, for an election."""

    token: Token
    certificate: CertificateChain
    signature: Signature
    cell: CellName | None = None


class Stem(Message, frozen=True):
    """On the way from a publisher to the root: a `Call` or `Notify`, walking first, and then `climbing` to the root."""

    climbing: bool
    cargo: Annotated[bytes, Meta(min_length=1, max_length=g.CARGO_MAX)]


class StemReceipt(Message, frozen=True):
    """Back along the stem: the root has the cargo of this name, and signs it with the key of its lot."""

    name: Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
    receipt: Annotated[bytes, Meta(min_length=g.LOT_PROOF, max_length=g.LOT_PROOF)]


class Knock(Message, frozen=True):
    """Certified membership, to a stranger: are you there, and who are you?"""

    nonce: Nonce


class Answer(Message, frozen=True):
    """To who knocked: this is my certificate; show me that you have one, with this cookie."""

    nonce: Nonce
    cookie: Nonce
    certificate: CertificateChain


class Show(Message, frozen=True):
    """To who answered: my certificate, and the proof that its key is mine. `stay`: I want a link, and not only news."""

    nonce: Nonce
    cookie: Nonce
    epoch: Epoch
    certificate: CertificateChain
    proof: Proof
    stay: bool


class Admit(Message, frozen=True):
    """To who has shown itself: my proof, whether there is a link now, and some addresses of others."""

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
}

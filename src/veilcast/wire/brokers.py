"""The messages of secret forwarding (P4), of both profiles, frozen and bounded as those of the other modes are.

Between two brokers, and between a client and each replica of its edge node, everything travels in `SessionItem`s, which
are
numbered, acknowledged and sent again on the next stream (`brokers.queues`). What is inside names things by digests of
themselves: a claim by its body, a publication by its routing. So whoever signs one signs the other, and nobody can say
two things under one name.

What the room of `brokers` makes of keys, portions and words is bytes here; it is decoded, checked and bounded there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.certificate import CertificateChain, Epoch
from veilcast.crypto.derive import digest
from veilcast.wire import geometry as g
from veilcast.wire.mesh import Counter, Message, Moment, Signature

NodeName: TypeAlias = Annotated[bytes, Meta(min_length=g.NODE, max_length=g.NODE)]
"""Of a virtual node (`brokers.sharing.scheme.NODE`)."""
ClaimId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
ContentId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
KeyId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
SessionId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
PublicKey: TypeAlias = Annotated[bytes, Meta(min_length=g.PUBLIC_KEY, max_length=g.PUBLIC_KEY)]
Attempt: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
Interest: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.INTEREST_MAX)]
"""In the language of the profile: predicates in the clear, or groups of tags."""
Cargo: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.ITEM_MAX)]
Blob: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.SHARING_MAX)]


class ClaimKind(IntEnum):
    ADVERTISEMENT = 1
    SUBSCRIPTION = 2


class FloodKind(IntEnum):
    """Which of the two floods of a hop a word belongs to."""

    ATTENDANCE = 1
    SETTLING = 2


class Hello(Message, frozen=True):
    """First on every stream: which life of mine this is, and the last number of yours that I have."""

    session: SessionId
    theirs: SessionId | None
    heard: Counter


class SessionItem(Message, frozen=True):
    """One message of a session, under its number there, from 1."""

    number: Counter
    cargo: Cargo


class ItemAck(Message, frozen=True):
    """I have all items of your session up to this one."""

    number: Counter


class Claim(Message, frozen=True):
    """What a client publishes or wants, until then; it goes from broker to broker as it is.

    An advertisement has the publisher's certificate, and `proof` is signed with the certified key. `reader` is the key
    whose other half all readers of the topic can derive for this epoch; a subscription's `proof` is signed with that.
    So brokers see that somebody was granted the topic, and not who. `holder` is the client's own key, drawn for this
    claim, with which it is withdrawn.
    """

    kind: ClaimKind
    edge: NodeName
    epoch: Epoch
    until_us: Moment
    interest: Interest
    holder: PublicKey
    chain: CertificateChain | None
    reader: PublicKey | None
    proof: Signature

    @property
    def id(self) -> bytes:
        return digest(self.body, purpose=b"vc/claim", size=g.NOTE_ID)

    @property
    def body(self) -> bytes:
        """What is signed: all but the proof."""
        return _ENCODER.encode(msgspec.structs.replace(self, proof=bytes(g.SIGNATURE)))


class BringClaim(Message, frozen=True):
    """A claim of the client that says this, to one replica of its edge node. Signed with the holder's key for this
    replica alone: whoever hears the claim elsewhere on its way cannot bring it as its own."""

    claim: Claim
    signature: Signature


class WithdrawClaim(Message, frozen=True):
    """The claim of this id ends; signed with its holder's key."""

    claim: ClaimId
    signature: Signature


class Routing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """By what brokers route a publication, and readers open it. The content's id is a digest of this, so the manifest,
    which the publisher signs, binds both. `number` is the publication's in the bulk of its key."""

    advertisement: ClaimId
    says: Interest
    key: KeyId
    number: Counter
    salt: Annotated[bytes, Meta(min_length=8, max_length=8)]

    @property
    def content(self) -> bytes:
        return digest(_ENCODER.encode(self), purpose=b"vc/routing", size=g.NOTE_ID)


class ForwardContent(Message, frozen=True):
    """A publication on its way: its routing, its manifest, and a block of it, or none where others bring them."""

    routing: Routing
    manifest: Blob
    block: Annotated[bytes, Meta(max_length=g.RELAYED_MAX)] | None
    index: Annotated[int, Meta(ge=0, le=255)]
    attempt: Attempt


class RequestBlocks(Message, frozen=True):
    """To the replicas of the node before: I lack these blocks of that content."""

    content: ContentId
    blocks: Annotated[tuple[Annotated[int, Meta(ge=1, le=255)], ...], Meta(min_length=1, max_length=255)]


class ConfirmContent(Message, frozen=True):
    """To the node before, or the publisher: everybody behind me who wants this content has it."""

    content: ContentId
    attempt: Attempt


class FirstShare(Message, frozen=True):
    """From a publisher to a replica of its edge node: its share of a key for all who want what is advertised.

    In `paper`, a parcel; in `hardened`, what was dealt."""

    advertisement: ClaimId
    share: Blob


class NextShare(Message, frozen=True):
    """From a replica to one of the next node: in `paper` a parcel, in `hardened` a portion of its share."""

    advertisement: ClaimId
    share: Blob


class AgreementWord(Message, frozen=True):
    """Among the replicas of one node, `hardened`: a word on whose dealings they go on with, vouched for."""

    key: KeyId
    attempt: Attempt
    node: NodeName
    """Where the dealings came from."""
    flood: FloodKind
    word: Blob


class DisputeDealing(Message, frozen=True):
    """To a holder: these replicas say that they lack what you dealt them; show it to all of us."""

    key: KeyId
    attempt: Attempt
    name: Annotated[bytes, Meta(min_length=g.DIGEST, max_length=g.DIGEST)]
    replicas: Annotated[tuple[Annotated[int, Meta(ge=1, le=255)], ...], Meta(min_length=1, max_length=255)]


class ShareReceived(Message, frozen=True):
    """To the holders before: I have my share of this key; when a majority says so, theirs can be erased."""

    key: KeyId
    attempt: Attempt


class LastShare(Message, frozen=True):
    """From a replica of the last node to a reader: its share of a key."""

    advertisement: ClaimId
    share: Blob


class WantKey(Message, frozen=True):
    """From a reader, toward the publisher: I have what was sealed with this key, and not the key."""

    advertisement: ClaimId
    key: KeyId


class OverlayOrder(Message, frozen=True):
    """The operator's signed word on the overlay's replicas (`brokers.overlay`); goes to everybody."""

    order: Blob


class VersionAdopted(Message, frozen=True):
    """A replica's answer to an order: I go by this version of the overlay now; `ready`: and lack nothing for it."""

    version: Counter
    ready: bool


class CopyRouting(Message, frozen=True):
    """A replica that has just come, to those of the neighbouring nodes and its own: tell me all claims you know."""

    version: Counter


class RoutingCopied(Message, frozen=True):
    """The answer to that, behind the claims: these are all."""

    version: Counter


class PullShare(Message, frozen=True):
    """A reader to a replica of the repository: the share of this key that you hold for those who can show this."""

    advertisement: ClaimId
    key: KeyId
    proof: Signature


class PushShare(Message, frozen=True):
    """A publisher to a replica of the repository, or that one to a reader: its share of this key.

    In `paper`, a parcel; in `hardened`, what a replica of a last node delivers."""

    advertisement: ClaimId
    key: KeyId
    share: Blob


_ENCODER: Final = msgspec.msgpack.Encoder()

# Append only.
TYPE_BYTES: Final[dict[int, type[Message]]] = {
    0x80: Hello,
    0x81: SessionItem,
    0x82: ItemAck,
    0x83: Claim,
    0x84: WithdrawClaim,
    0x85: ForwardContent,
    0x86: RequestBlocks,
    0x87: ConfirmContent,
    0x88: FirstShare,
    0x89: NextShare,
    0x8A: AgreementWord,
    0x8B: DisputeDealing,
    0x8C: ShareReceived,
    0x8D: LastShare,
    0x8E: WantKey,
    0x8F: OverlayOrder,
    0x90: VersionAdopted,
    0x91: CopyRouting,
    0x92: PullShare,
    0x93: PushShare,
    0x94: RoutingCopied,
    0x95: BringClaim,
}

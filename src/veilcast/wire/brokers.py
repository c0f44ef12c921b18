"""The messages of secret forwarding (P4), of both profiles, frozen and bounded like those of the other modes.

Between two brokers, and between a client and each replica of its edge node, everything travels in `SessionItem`s, which
are numbered, acknowledged and sent again on the next stream (`brokers.queues`). The messages inside name things by
their digests: a claim by its body, a publication by its routing. So a signature on a name is a signature on the thing,
and nobody can send two things under one name.

Keys, shares and agreement messages are plain bytes here. The room `brokers` decodes, checks and bounds them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from veilcast.crypto.certificate import CertificateChain, Epoch
from veilcast.crypto.derive import digest
from veilcast.wire import geometry as g
from veilcast.wire.base import Counter, Message, Moment, Signature

NodeName: TypeAlias = Annotated[bytes, Meta(min_length=g.NODE, max_length=g.NODE)]
"""The name of a virtual node (`brokers.keys.scheme.NODE`)."""
ClaimId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
ContentId: TypeAlias = Annotated[bytes, Meta(min_length=g.NOTE_ID, max_length=g.NOTE_ID)]
KeyId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
SessionId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
PublicKey: TypeAlias = Annotated[bytes, Meta(min_length=g.PUBLIC_KEY, max_length=g.PUBLIC_KEY)]
Attempt: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
Interest: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.INTEREST_MAX)]
"""An interest in the form of the profile: predicates in the clear, or groups of tags."""
Cargo: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.ITEM_MAX)]
Blob: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=g.SHARING_MAX)]


class ClaimKind(IntEnum):
    ADVERTISEMENT = 1
    SUBSCRIPTION = 2


class FloodKind(IntEnum):
    """The two floods of one hop."""

    ATTENDANCE = 1
    SETTLING = 2


class Hello(Message, frozen=True):
    """First on every stream: the sender's session, and the last number that it has of the receiver's session."""

    session: SessionId
    theirs: SessionId | None
    heard: Counter


class SessionItem(Message, frozen=True):
    """One message of a session, under its number there, from 1."""

    number: Counter
    cargo: Cargo


class ItemAck(Message, frozen=True):
    """The sender has all items of the receiver's session up to this number."""

    number: Counter


class Claim(Message, frozen=True):
    """A client's advertisement or subscription, until `until_us`. Brokers forward it unchanged.

    An advertisement has the publisher's certificate, and `proof` is signed with the certified key. `reader` is a public
    key whose private key all subscribers of the topic can derive for this epoch; a subscription's `proof` is signed
    with that private key. So brokers see that the client was granted the topic, and not which client it is. `holder` is
    the client's own key, drawn for this claim, with which the claim is withdrawn.
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
        """The signed bytes: all but the proof."""
        return _ENCODER.encode(msgspec.structs.replace(self, proof=bytes(g.SIGNATURE)))


class BringClaim(Message, frozen=True):
    """A claim, from its client to one replica of the client's edge node.

    The signature with the holder's key is for this replica alone: a broker that receives the claim elsewhere cannot
    bring it as its own.
    """

    claim: Claim
    signature: Signature


class WithdrawClaim(Message, frozen=True):
    """The claim of this id ends; signed with its holder's key."""

    claim: ClaimId
    signature: Signature


class Routing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The fields that brokers route a publication by and that subscribers open it with. The content's id is a digest of
    this, so the manifest, which the publisher signs, binds both. `number` is the publication's number among those under
    its key.
    """

    advertisement: ClaimId
    says: Interest
    key: KeyId
    number: Counter
    salt: Annotated[bytes, Meta(min_length=8, max_length=8)]

    @property
    def content(self) -> bytes:
        return digest(_ENCODER.encode(self), purpose=b"vc/routing", size=g.NOTE_ID)


class ForwardContent(Message, frozen=True):
    """A publication in transit: its routing, its manifest, and a block of it; no block if other replicas send them."""

    routing: Routing
    manifest: Blob
    block: Annotated[bytes, Meta(max_length=g.RELAYED_MAX)] | None
    index: Annotated[int, Meta(ge=0, le=255)]
    attempt: Attempt


class RequestBlocks(Message, frozen=True):
    """To the replicas of the node before: the sender lacks these blocks of that content."""

    content: ContentId
    blocks: Annotated[tuple[Annotated[int, Meta(ge=1, le=255)], ...], Meta(min_length=1, max_length=255)]


class ConfirmContent(Message, frozen=True):
    """To the node before, or the publisher: every subscriber behind the sender that wants this content has it."""

    content: ContentId
    attempt: Attempt


class FirstShare(Message, frozen=True):
    """From a publisher to a replica of its edge node: its share of a key for the subscribers of an advertisement.

    In `paper` a piece of a split key, in `hardened` a dealing.
    """

    advertisement: ClaimId
    share: Blob


class NextShare(Message, frozen=True):
    """From a replica to one of the next node: in `paper` a piece of a split key, in `hardened` a subshare of
    its share.
    """

    advertisement: ClaimId
    share: Blob


class AgreementWord(Message, frozen=True):
    """Among the replicas of one node, `hardened`: a vouched message about the dealings that they go on with."""

    key: KeyId
    attempt: Attempt
    node: NodeName
    """The node that the dealings came from."""
    flood: FloodKind
    word: Blob


class DisputeDealing(Message, frozen=True):
    """To a holder: these replicas say that they lack its dealing; the holder is to show it to all."""

    key: KeyId
    attempt: Attempt
    name: Annotated[bytes, Meta(min_length=g.DIGEST, max_length=g.DIGEST)]
    replicas: Annotated[tuple[Annotated[int, Meta(ge=1, le=255)], ...], Meta(min_length=1, max_length=255)]


class ShareReceived(Message, frozen=True):
    """To the holders before: the sender has its share of this key.

    If a majority confirms this, the old shares can be erased.
    """

    key: KeyId
    attempt: Attempt


class LastShare(Message, frozen=True):
    """From a replica of the last node to a subscriber: its share of a key."""

    advertisement: ClaimId
    share: Blob


class WantKey(Message, frozen=True):
    """From a subscriber, toward the publisher: it has a content that is sealed with this key, and not the key."""

    advertisement: ClaimId
    key: KeyId


class OverlayOrder(Message, frozen=True):
    """The operator's signed order on the overlay's replicas (`brokers.overlay`); it goes to every broker and client."""

    order: Blob


class VersionAdopted(Message, frozen=True):
    """A replica's answer to an order: it uses this version of the overlay now; `ready`: and lacks nothing for it."""

    version: Counter
    ready: bool


class CopyRouting(Message, frozen=True):
    """A new replica, to those of the neighbouring nodes and of its own: it asks for all claims they know."""

    version: Counter


class RoutingCopied(Message, frozen=True):
    """The end of the answer to that, behind the claims."""

    version: Counter


class PullShare(Message, frozen=True):
    """A subscriber to a replica of the repository: it asks for the share of this key, with a proof that it may read."""

    advertisement: ClaimId
    key: KeyId
    proof: Signature


class PushShare(Message, frozen=True):
    """A publisher to a replica of the repository, or that one to a subscriber: its share of this key.

    In `paper` a piece of a split key; in `hardened` the share that a replica of a last node delivers.
    """

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

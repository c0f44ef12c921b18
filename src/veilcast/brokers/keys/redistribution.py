"""Redistribution: one share per replica at every hop, however long the path (`hardened`).

The paper splits every share again at every hop, which makes r^h shares. Here the replicas of one hop deal their shares
to those of the next hop. Each of these combines k dealings into one share of a fresh polynomial with the same secret
(`crypto.verifiable_sharing`): r^2 dealt shares per hop. The replicas agree in one more round on which k dealings to
combine (`agreement`, `share_reception`), with at most r^2 messages if no replica is Byzantine; r + 2 r^2 (h - 1) + r on
the whole path.

The publisher signs its dealing. So all know the commitment to the secret, which redistribution does not change, and a
subscriber accepts no other secret, whatever brokers send. Each holder signs what it deals.

Shares that are kept accumulate for an adversary that moves from broker to broker. So a broker erases its share when it
has dealt it, and the dealing when no dispute is possible any more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Self

import msgspec

from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.crypto.verifiable_sharing import Commitments, Dealing, VerifiableShare
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy

Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]
Points = Annotated[bytes, msgspec.Meta(min_length=34, max_length=2 + 32 * 255)]


class PublisherHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The publisher's signed statement on a key: its dealing to the first node, and the time.

    Brokers remember finished transfers for a limited time. A key older than that must not be transferred again: honest
    replicas would make other statements than the first time, and look Byzantine.
    """

    key_attempt: KeyAttempt
    scheme: Scheme
    points: Points
    dealt_us: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    signature: Signature

    @property
    def commitments(self) -> Commitments:
        return decode_commitments(self.points)

    def check(self, publisher: bytes) -> None:
        verify(publisher, _signed_bytes(self), self.signature, purpose=_PUBLISHER_PURPOSE)
        if self.commitments.threshold != self.scheme.threshold:
            raise ForgedError("a key is dealt with the majority of its receivers")

    def check_fresh(self, now: int, within_us: int) -> None:
        """Raise if the dealing time differs from `now` by more than `within_us`, in either direction."""
        if abs(now - self.dealt_us) > within_us:
            raise StaleError("a key that was dealt long ago, or claims a future time")

    def check_sharing(self, commitments: Commitments, scheme: Scheme) -> None:
        """Raise unless these commitments are to the same secret, for this node."""
        if commitments.threshold != scheme.threshold or commitments.points[0] != self.commitments.points[0]:
            raise ForgedError("a sharing of another secret, or for another node")


class HolderHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A holder's signed statement on its dealing: the sharing that its share belongs to, and the new commitments."""

    key_attempt: KeyAttempt
    old_scheme: Scheme
    holder: Annotated[int, msgspec.Meta(ge=1, le=255)]
    new_scheme: Scheme
    old_points: Points
    new_points: Points
    signature: Signature

    def __post_init__(self) -> None:
        self.old_scheme.check_index(self.holder)

    @property
    def name(self) -> bytes:
        """Digest of the signed content. Two signatures of the same content have the same name."""
        return digest(_signed_bytes(self), purpose=b"vc/dealt")

    @property
    def old_sharing(self) -> bytes:
        return digest(self.old_points, purpose=b"vc/dealt-old")

    def check(self, root: PublisherHeader, replica_keys: ReplicaKeys) -> None:
        """Raise unless the holder signed it and deals exactly its share of the named sharing."""
        if self.key_attempt != root.key_attempt:
            raise ForgedError("a dealing of another key or attempt")
        verify(
            replica_keys.key_of(ReplicaId(self.old_scheme, self.holder)),
            _signed_bytes(self),
            self.signature,
            purpose=_HOLDER_PURPOSE,
        )
        old = decode_commitments(self.old_points)
        root.check_sharing(old, self.old_scheme)
        verifiable_sharing.verify_redistribution(
            old, self.holder, decode_commitments(self.new_points), self.new_scheme.threshold
        )


class PublisherShare(msgspec.Struct, frozen=True):
    """The publisher's message to a replica of the first node."""

    publisher_header: PublisherHeader
    share: VerifiableShare

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.publisher_header, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, share = _PUBLISHER_SHARE_DECODER.decode(data)
        return cls(root, VerifiableShare.decode(share))


class DealtShare(msgspec.Struct, frozen=True):
    """A holder's message to a replica of the next node. Shown to all replicas of that node, it settles a dispute."""

    publisher_header: PublisherHeader
    holder_header: HolderHeader
    share: VerifiableShare

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.publisher_header, self.holder_header, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, header, share = _DECODER.decode(data)
        return cls(root, header, VerifiableShare.decode(share))

    def check(self, replica_keys: ReplicaKeys) -> None:
        """Raise unless the holder's part is valid, for any receiver. The publisher's header is checked separately."""
        self.holder_header.check(self.publisher_header, replica_keys)
        verifiable_sharing.verify_share(self.share, decode_commitments(self.holder_header.new_points))


class DeliveredShare(msgspec.Struct, frozen=True):
    """The message of a replica of the last node to the subscriber."""

    publisher_header: PublisherHeader
    points: bytes
    share: VerifiableShare

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.publisher_header, self.points, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, points, share = _DELIVERED_DECODER.decode(data)
        return cls(root, points, VerifiableShare.decode(share))


class HeldShare:
    """A replica's share of a key, and its sharing, until the share is erased."""

    def __init__(
        self, publisher_header: PublisherHeader, holder_id: ReplicaId, commitments: Commitments, share: VerifiableShare
    ) -> None:
        self.publisher_header, self.holder_id, self.commitments = publisher_header, holder_id, commitments
        self._share: VerifiableShare | None = share

    @property
    def share(self) -> VerifiableShare:
        if self._share is None:
            raise LocalError("the share was erased when it had been dealt")
        return self._share

    def erase(self) -> None:
        self._share = None

    def make_delivery(self) -> DeliveredShare:
        return DeliveredShare(self.publisher_header, self.commitments.encode(), self.share)


class IssuedDealing:
    """A holder's dealing to the next node: a share for each replica, kept for disputes."""

    def __init__(self, root: PublisherHeader, header: HolderHeader, dealt: Dealing) -> None:
        self.publisher_header, self.holder_header = root, header
        self._shares: tuple[VerifiableShare, ...] = dealt.shares

    @property
    def shares(self) -> list[DealtShare]:
        return [DealtShare(self.publisher_header, self.holder_header, share) for share in self._shares]

    def share_for(self, replica: int) -> DealtShare:
        """The share of this replica: for that replica alone, or for all once it has signed that it lacks the share."""
        self.holder_header.new_scheme.check_index(replica)
        if not self._shares:
            raise LocalError("the dealing was erased")
        return DealtShare(self.publisher_header, self.holder_header, self._shares[replica - 1])

    def erase(self) -> None:
        self._shares = ()


def deal_key(
    secret: Scalar, key_attempt: KeyAttempt, to: Scheme, signing: SigningKey, entropy: Entropy, dealt_us: int = 0
) -> list[PublisherShare]:
    """The publisher's step. Call it afresh for every path and attempt. A key that is not redistributed needs no dealing
    time."""
    dealt = verifiable_sharing.deal_secret(secret, to.threshold, to.size, entropy)
    root = PublisherHeader(key_attempt, to, dealt.commitments.encode(), dealt_us, bytes(SIGNATURE))
    root = msgspec.structs.replace(root, signature=signing.sign(_signed_bytes(root), purpose=_PUBLISHER_PURPOSE))
    return [PublisherShare(root, share) for share in dealt.shares]


def accept_publisher_share(first: PublisherShare, holder_id: ReplicaId, publisher: bytes) -> HeldShare:
    """The step of a replica of the first node. No agreement is needed on an honest publisher's dealing."""
    first.publisher_header.check(publisher)
    if first.publisher_header.scheme != holder_id.scheme or first.share.index != holder_id.index:
        raise ForgedError("a share for another replica")
    commitments = first.publisher_header.commitments
    verifiable_sharing.verify_share(first.share, commitments)
    return HeldShare(first.publisher_header, holder_id, commitments, first.share)


def redistribute_share(held: HeldShare, to: Scheme, signing: SigningKey, entropy: Entropy) -> IssuedDealing:
    """A holder's step: deal its share to a next node. Call it once for each branch."""
    dealt = verifiable_sharing.redistribute_share(held.share, to.threshold, to.size, entropy)
    holder_id = held.holder_id
    header = HolderHeader(
        held.publisher_header.key_attempt,
        holder_id.scheme,
        holder_id.index,
        to,
        held.commitments.encode(),
        dealt.commitments.encode(),
        bytes(SIGNATURE),
    )
    header = msgspec.structs.replace(header, signature=signing.sign(_signed_bytes(header), purpose=_HOLDER_PURPOSE))
    return IssuedDealing(held.publisher_header, header, dealt)


class RedistributedKeyCollector:
    """The subscriber's end: returns the secret as soon as a majority of a last node agrees on a sharing of it.

    Bounded by the replicas that send something: the first share of each counts.
    """

    def __init__(self, key_attempt: KeyAttempt, publisher: bytes) -> None:
        self._key_attempt, self._publisher = key_attempt, publisher
        self._shares: dict[tuple[Scheme, bytes], dict[int, VerifiableShare]] = {}
        self._delivered: dict[ReplicaId, DeliveredShare] = {}
        self._faulty: dict[ReplicaId, None] = {}
        self._secret: Scalar | None = None

    @property
    def secret(self) -> Scalar | None:
        return self._secret

    @property
    def faulty(self) -> list[ReplicaId]:
        """Replicas proven Byzantine: their share does not match its commitment, or is of a sharing that a majority does
        not have."""
        return list(self._faulty)

    def add(self, delivery: DeliveredShare, sender: ReplicaId) -> Scalar | None:
        """Add this replica's share. Returns the secret once it is complete. The caller identifies the sender by its
        link."""
        if delivery.publisher_header.key_attempt != self._key_attempt:
            raise StaleError("a share of another key or attempt")
        try:
            if delivery.share.index != sender.index:
                raise ForgedError("a share of another replica")
            delivery.publisher_header.check(self._publisher)
            commitments = decode_commitments(delivery.points)
            delivery.publisher_header.check_sharing(commitments, sender.scheme)
            verifiable_sharing.verify_share(delivery.share, commitments)
        except RemoteError:
            self._faulty[sender] = None
            raise
        if self._delivered.setdefault(sender, delivery) != delivery:
            # While its node changes, a replica may have a share under each scheme: that proves nothing.
            raise StaleError("a second share of one replica")
        group = self._shares.setdefault((sender.scheme, delivery.points), {})
        group[sender.index] = delivery.share
        if self._secret is None and len(group) == sender.scheme.threshold:
            self._secret = verifiable_sharing.reconstruct(list(group.values()), commitments)
        self._find_faulty(sender.scheme)
        return self._secret

    def _find_faulty(self, scheme: Scheme) -> None:
        """Once a majority has one sharing, an honest replica has it, so all honest replicas do."""
        groups = [(key, group) for key, group in self._shares.items() if key[0] == scheme]
        if any(len(group) >= scheme.threshold for _, group in groups):
            for _, group in groups:
                if len(group) < scheme.threshold:
                    self._faulty |= {ReplicaId(scheme, index): None for index in group}


@lru_cache(maxsize=512)
def decode_commitments(points: bytes) -> Commitments:
    """Cached: every replica of a hop receives the same bytes several times."""
    return Commitments.decode(points)


def _signed_bytes(header: PublisherHeader | HolderHeader) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(header, signature=bytes(SIGNATURE)))


_PUBLISHER_PURPOSE: Final = b"veilcast/dealt"
_HOLDER_PURPOSE: Final = b"veilcast/redealt"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(tuple[PublisherHeader, HolderHeader, bytes], MalformedError, "not a dealt share")
_PUBLISHER_SHARE_DECODER: Final = MsgpackDecoder(
    tuple[PublisherHeader, bytes], MalformedError, "not a publisher's share"
)
_DELIVERED_DECODER: Final = MsgpackDecoder(
    tuple[PublisherHeader, Points, bytes], MalformedError, "not a share for a subscriber"
)

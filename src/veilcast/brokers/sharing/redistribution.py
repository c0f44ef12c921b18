"""Redistribution: one share for each replica at every hop, however long the way (`hardened`).

Pure; randomness is handed in. The paper splits every share again at every hop, which makes r^h of them. Here replicas
of one hop deal the share they have to those of the next, who put k dealings together to one share each, of a fresh
polynomial with the same secret (`crypto.dealing`): r^2 portions a hop. Which k, they agree on in one round more
(`attendance`, `receiving`), r^2 messages at most if nobody lies; r + 2 r^2 (h - 1) + r on the whole way.

The publisher signs its dealing, so everybody knows the commitment to the secret, which redistribution does not change:
a subscriber takes no other secret, whatever brokers say. Each holder signs what it deals.

Shares that are kept pile up against an adversary that moves from broker to broker. So a broker erases its share when it
has handed it on, and what it dealt when no dispute can come any more: `erase`, after which there is nothing to show.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Self

import msgspec

from veilcast.brokers.sharing.paper import Origin
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.crypto import dealing
from veilcast.crypto.dealing import Commitments, Dealing, Share
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy

Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]
Points = Annotated[bytes, msgspec.Meta(min_length=34, max_length=2 + 32 * 255)]


class Root(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The publisher's word on a key: what it dealt to the first node, and when.

    Brokers remember what has passed for a while only. What is older than that must not pass again: honest replicas
    would say other things of it than they did then, and look like liars.
    """

    origin: Origin
    to: Scheme
    points: Points
    dealt_us: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    signature: Signature

    @property
    def commitments(self) -> Commitments:
        return commitments_of(self.points)

    def check(self, publisher: bytes) -> None:
        verify(publisher, _signed(self), self.signature, purpose=_ROOT)
        if self.commitments.threshold != self.to.threshold:
            raise ForgedError("a key is dealt with the majority of its receivers")

    def check_fresh(self, now: int, within_us: int) -> None:
        """Raise unless it was dealt no longer ago than that, nor so much later than now."""
        if abs(now - self.dealt_us) > within_us:
            raise StaleError("a key that was dealt long ago, or is said to be dealt some day")

    def check_sharing(self, commitments: Commitments, scheme: Scheme) -> None:
        """Raise unless these are commitments to the same secret, for this node."""
        if commitments.threshold != scheme.threshold or commitments.points[0] != self.commitments.points[0]:
            raise ForgedError("a sharing of another secret, or for another node")


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A holder's word on what it deals again: which sharing its share is of, and the new commitments."""

    origin: Origin
    by: Scheme
    holder: Annotated[int, msgspec.Meta(ge=1, le=255)]
    to: Scheme
    old: Points
    new: Points
    signature: Signature

    def __post_init__(self) -> None:
        self.by.check_index(self.holder)

    @property
    def name(self) -> bytes:
        """Of what is said; two signatures under it make no difference."""
        return digest(_signed(self), purpose=b"vc/dealt")

    @property
    def old_name(self) -> bytes:
        return digest(self.old, purpose=b"vc/dealt-old")

    def check(self, root: Root, roster: Roster) -> None:
        """Raise unless the holder signed it and deals just the share that it has of the sharing it names."""
        if self.origin != root.origin:
            raise ForgedError("a dealing of another key or attempt")
        verify(roster.key(Place(self.by, self.holder)), _signed(self), self.signature, purpose=_HEADER)
        old = commitments_of(self.old)
        root.check_sharing(old, self.by)
        dealing.verify_redistribution(old, self.holder, commitments_of(self.new), self.to.threshold)


class First(msgspec.Struct, frozen=True):
    """What the publisher sends a replica of the first node."""

    root: Root
    share: Share

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.root, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, share = _FIRST.decode(data)
        return cls(root, Share.decode(share))


class Portion(msgspec.Struct, frozen=True):
    """What a holder sends a replica of the next node; shown to all of them, it settles a dispute."""

    root: Root
    header: Header
    share: Share

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.root, self.header, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, header, share = _DECODER.decode(data)
        return cls(root, header, Share.decode(share))

    def check(self, roster: Roster) -> None:
        """Raise unless the holder's part holds, whoever the receiver is; the publisher's word is checked by itself."""
        self.header.check(self.root, roster)
        dealing.verify(self.share, commitments_of(self.header.new))


class Delivery(msgspec.Struct, frozen=True):
    """What a replica of the last node sends the subscriber."""

    root: Root
    points: bytes
    share: Share

    def encode(self) -> Secret:
        return Secret(_ENCODER.encode((self.root, self.points, self.share.encode().reveal())))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        root, points, share = _DELIVERY.decode(data)
        return cls(root, points, Share.decode(share))


class Holding:
    """A replica's share of a key, and what it is a share of, until it is erased."""

    def __init__(self, root: Root, place: Place, commitments: Commitments, share: Share) -> None:
        self.root, self.place, self.commitments = root, place, commitments
        self._share: Share | None = share

    @property
    def share(self) -> Share:
        if self._share is None:
            raise LocalError("the share was erased when it had been handed on")
        return self._share

    def erase(self) -> None:
        self._share = None

    def delivery(self) -> Delivery:
        return Delivery(self.root, self.commitments.encode(), self.share)


class Handed:
    """What a holder dealt to the next node: a portion for each replica, and for whoever denies having it."""

    def __init__(self, root: Root, header: Header, dealt: Dealing) -> None:
        self.root, self.header = root, header
        self._shares: tuple[Share, ...] = dealt.shares

    @property
    def portions(self) -> list[Portion]:
        return [Portion(self.root, self.header, share) for share in self._shares]

    def portion(self, replica: int) -> Portion:
        """For this replica alone; or for all, once it has said and signed that it has none."""
        self.header.to.check_index(replica)
        if not self._shares:
            raise LocalError("what was dealt was erased")
        return Portion(self.root, self.header, self._shares[replica - 1])

    def erase(self) -> None:
        self._shares = ()


def deal_key(
    secret: Scalar, origin: Origin, to: Scheme, signing: SigningKey, entropy: Entropy, dealt_us: int = 0
) -> list[First]:
    """The publisher's step. Afresh for every path and every attempt. What is not handed on needs no time."""
    dealt = dealing.deal(secret, to.threshold, to.size, entropy)
    root = Root(origin, to, dealt.commitments.encode(), dealt_us, bytes(SIGNATURE))
    root = msgspec.structs.replace(root, signature=signing.sign(_signed(root), purpose=_ROOT))
    return [First(root, share) for share in dealt.shares]


def take_first(first: First, place: Place, publisher: bytes) -> Holding:
    """The step of a replica of the first node: no agreement is needed on the word of one who does not lie."""
    first.root.check(publisher)
    if first.root.to != place.scheme or first.share.index != place.index:
        raise ForgedError("a share for another replica")
    commitments = first.root.commitments
    dealing.verify(first.share, commitments)
    return Holding(first.root, place, commitments, first.share)


def hand_on(holding: Holding, to: Scheme, signing: SigningKey, entropy: Entropy) -> Handed:
    """A holder's step: its share, dealt afresh to a next node. Once for each branch."""
    dealt = dealing.redistribute(holding.share, to.threshold, to.size, entropy)
    place = holding.place
    header = Header(
        holding.root.origin,
        place.scheme,
        place.index,
        to,
        holding.commitments.encode(),
        dealt.commitments.encode(),
        bytes(SIGNATURE),
    )
    header = msgspec.structs.replace(header, signature=signing.sign(_signed(header), purpose=_HEADER))
    return Handed(holding.root, header, dealt)


class Collecting:
    """The subscriber's end: the secret, as soon as a majority of a last node agrees on a sharing of it.

    Bounded by the replicas that bring something: of each the first share counts.
    """

    def __init__(self, origin: Origin, publisher: bytes) -> None:
        self._origin, self._publisher = origin, publisher
        self._shares: dict[tuple[Scheme, bytes], dict[int, Share]] = {}
        self._brought: dict[Place, Delivery] = {}
        self._liars: dict[Place, None] = {}
        self._secret: Scalar | None = None

    @property
    def secret(self) -> Scalar | None:
        return self._secret

    @property
    def liars(self) -> list[Place]:
        """For certain: whose share is not as committed, or of a sharing that a majority does not have."""
        return list(self._liars)

    def add(self, delivery: Delivery, bearer: Place) -> Scalar | None:
        """Take what this replica brings; the secret, once it comes out. The caller knows the bearer by its link."""
        if delivery.root.origin != self._origin:
            raise StaleError("a share of another key or attempt")
        try:
            if delivery.share.index != bearer.index:
                raise ForgedError("a share of another replica")
            delivery.root.check(self._publisher)
            commitments = commitments_of(delivery.points)
            delivery.root.check_sharing(commitments, bearer.scheme)
            dealing.verify(delivery.share, commitments)
        except RemoteError:
            self._liars[bearer] = None
            raise
        if self._brought.setdefault(bearer, delivery) != delivery:
            # While its node changes it may have one under each scheme: that is no lie.
            raise StaleError("a second share of one replica")
        group = self._shares.setdefault((bearer.scheme, delivery.points), {})
        group[bearer.index] = delivery.share
        if self._secret is None and len(group) == bearer.scheme.threshold:
            self._secret = dealing.reconstruct(list(group.values()), commitments)
        self._name(bearer.scheme)
        return self._secret

    def _name(self, scheme: Scheme) -> None:
        """Once a majority has one sharing, an honest replica has it, so all of them do."""
        groups = [(key, group) for key, group in self._shares.items() if key[0] == scheme]
        if any(len(group) >= scheme.threshold for _, group in groups):
            for _, group in groups:
                if len(group) < scheme.threshold:
                    self._liars |= {Place(scheme, index): None for index in group}


@lru_cache(maxsize=512)
def commitments_of(points: bytes) -> Commitments:
    """Decoded once: every replica of a hop is sent the same ones several times."""
    return Commitments.decode(points)


def _signed(said: Root | Header) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(said, signature=bytes(SIGNATURE)))


_ROOT: Final = b"veilcast/dealt"
_HEADER: Final = b"veilcast/redealt"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(tuple[Root, Header, bytes], MalformedError, "not a portion")
_FIRST: Final = MsgpackDecoder(tuple[Root, bytes], MalformedError, "not a publisher's share")
_DELIVERY: Final = MsgpackDecoder(tuple[Root, Points, bytes], MalformedError, "not a share for a reader")

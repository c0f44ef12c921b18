"""The share store of a repository replica: key shares out of band, for subscribers that ask (P4, "Solution Analysis and
Adaptations").

Where an overlay has a repository, a publisher sends its keys there and not through the brokers: one share to each
replica of the repository, dealt as to a virtual node, so that a minority of them knows nothing. A subscriber pulls a
share from each and combines a majority. A key then costs r messages, and r for each subscriber, however long the
content's path is; but subscribers must ask, and wait for the answer.

The publisher first sends its advertisement, as to its edge node. Everything that it sends must be signed with the key
certified there. So nobody else can fill a store, or replace a share. A subscriber proves that it was granted the topic
by a signature with the topic's subscriber key on its request and its receiver. So a Byzantine replica cannot ask the
others in its name.

Shares are kept as long as their advertisement is valid, not only until they are forwarded. Against an adversary that
moves from replica to replica that is worse than transfer through the brokers. In `hardened` the topic's key still
protects the content, as always.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.keys.paper_split import KeyAttempt, SplitShare, TrailVerifier, split_key
from veilcast.brokers.keys.redistribution import DeliveredShare, deal_key
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.routing.claims import check_advertisement, check_bring, check_times, subscriber_key
from veilcast.core.timers import Timers
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.sign import SigningKey, verify
from veilcast.errors import ExcessError, ForgedError, StaleError
from veilcast.machine import Address, Entropy
from veilcast.wire.brokers import BringClaim, PullShare, PushShare

KeyName: TypeAlias = tuple[bytes, bytes]
"""The advertisement of a key, and the key's id."""


def make_pushes(
    name: KeyName, shared: Scalar, attempt: int, to: Scheme, signing: SigningKey, entropy: Entropy, *, hardened: bool
) -> list[PushShare]:
    """The publisher's step: the message for each replica of the repository. Made afresh for every attempt."""
    origin = KeyAttempt(name[1], attempt)
    if hardened:
        firsts = deal_key(shared, origin, to, signing, entropy)
        blobs = [
            DeliveredShare(first.publisher_header, first.publisher_header.points, first.share).encode()
            for first in firsts
        ]
    else:
        blobs = [parcel.encode() for parcel in split_key(shared, origin, to, signing, entropy)]
    return [PushShare(*name, blob.reveal()) for blob in blobs]


def make_pull(name: KeyName, keys: TopicKeys, replica: bytes) -> PullShare:
    """A subscriber's step: the request to the replica with this key."""
    advertisement, key = name
    return PullShare(advertisement, key, subscriber_key(keys).sign(advertisement + key + replica, purpose=_PULL))


class ShareStore:
    """The shares of one replica of the repository.

    Bounded: `claims_max` advertisements, `client_claims` of one client; `keys_max` keys, beyond which the advertisement
    with the most keys loses its oldest; and `waiting_max` waiting subscribers.
    """

    def __init__(self, config: BrokerConfig, me: bytes, root: bytes, epoch_us: int, roster: ReplicaKeys) -> None:
        self._config, self._me, self._root, self._epoch_us, self._roster = config, me, root, epoch_us, roster
        self._hardened = config.profile == "hardened"
        self._adverts: dict[bytes, _StoredAdvertisement] = {}
        self._until: Timers[bytes] = Timers()
        self._waiting: dict[tuple[KeyName, Address], None] = {}
        self.outbox: list[tuple[Address, PushShare]] = []

    def __len__(self) -> int:
        return sum(len(advert.shares) for advert in self._adverts.values())

    def sizes(self) -> dict[str, int]:
        return {"claims": len(self._adverts), "keys": len(self), "waiting": len(self._waiting)}

    def claims_of(self, client: Address) -> int:
        return sum(advert.client == client for advert in self._adverts.values())

    def add_advertisement(self, brought: BringClaim, client: Address, now: int) -> None:
        """Add a publisher's advertisement. The same one again, over another stream, only updates the client."""
        check_bring(brought, self._me)
        claim = brought.claim
        id_ = claim.id
        if id_ in self._adverts:
            self._adverts[id_].client = client
            return
        if len(self._adverts) >= self._config.claims_max or self.claims_of(client) >= self._config.client_claims:
            raise ExcessError("no room for another advertisement, or none for another of this client")
        check_times(claim, self._hardened, self._epoch_us, self._config.lease_us, now)
        check_advertisement(claim, self._root)
        assert claim.chain is not None, "an advertisement shows its certificate"
        assert claim.reader is not None, "and whose signature readers show"
        self._adverts[id_] = _StoredAdvertisement(client, claim.chain.leaf.subject, claim.reader)
        self._until.set(id_, claim.until_us)

    def store_share(self, push: PushShare, place: ReplicaId) -> None:
        """Store a share for this replica, in place of one of an earlier attempt."""
        advert = self._advert(push.advertisement)
        origin = self._check(push, place, advert.publisher)
        held = advert.shares.get(push.key)
        if held is not None and origin.attempt <= held.attempt:
            raise StaleError("a share that is here already, or of an earlier attempt")
        advert.shares.pop(push.key, None)
        advert.shares[push.key] = _StoredShare(origin.attempt, push)
        while len(self) > self._config.keys_max:
            fullest = max(self._adverts.values(), key=lambda other: len(other.shares))
            del fullest.shares[next(iter(fullest.shares))]
        name = (push.advertisement, push.key)
        for waiting in [each for each in self._waiting if each[0] == name]:
            del self._waiting[waiting]
            self.outbox.append((waiting[1], push))

    def answer_pull(self, pull: PullShare, client: Address) -> None:
        """Answer a subscriber that proves its permission: at once, or when the share arrives."""
        advert = self._advert(pull.advertisement)
        verify(advert.reader, pull.advertisement + pull.key + self._me, pull.proof, purpose=_PULL)
        held = advert.shares.get(pull.key)
        if held is not None:
            self.outbox.append((client, held.push))
            return
        own = sum(waiting == client for _, waiting in self._waiting)
        if len(self._waiting) >= self._config.waiting_max or own >= self._config.client_claims:
            raise ExcessError("more than may wait for a key")
        self._waiting[(pull.advertisement, pull.key), client] = None

    def on_client_lost(self, client: Address) -> None:
        """A disconnected client waits no more, and asks again when it is back."""
        for waiting in [each for each in self._waiting if each[1] == client]:
            del self._waiting[waiting]

    def next_us(self) -> int | None:
        return self._until.next_us()

    def handle(self, now: int) -> None:
        """Erase expired advertisements and their shares."""
        for id_ in self._until.pop_due(now):
            del self._adverts[id_]
            for waiting in [each for each in self._waiting if each[0][0] == id_]:
                del self._waiting[waiting]

    def _advert(self, id_: bytes) -> _StoredAdvertisement:
        if id_ not in self._adverts:
            raise StaleError("under an advertisement that is not known here")
        return self._adverts[id_]

    def _check(self, push: PushShare, place: ReplicaId, publisher: bytes) -> KeyAttempt:
        if self._hardened:
            delivery = DeliveredShare.decode(push.share)
            root = delivery.publisher_header
            root.check(publisher)
            if root.scheme != place.scheme or delivery.share.index != place.index or delivery.points != root.points:
                raise ForgedError("a share for another replica")
            verifiable_sharing.verify_share(delivery.share, root.commitments)
            origin = root.key_attempt
        else:
            parcel = SplitShare.decode(push.share)
            if parcel.hops != 1 or parcel.holder != place:
                raise ForgedError("a piece for another replica")
            TrailVerifier(publisher, self._roster).check(parcel)
            origin = parcel.key_attempt
        if origin.key != push.key:
            raise ForgedError("a share of another key")
        return origin


@dataclass(slots=True)
class _StoredShare:
    attempt: int
    push: PushShare


@dataclass(slots=True)
class _StoredAdvertisement:
    client: Address
    publisher: bytes
    reader: bytes
    shares: dict[bytes, _StoredShare] = field(default_factory=dict)


_PULL: Final = b"veilcast/pull"

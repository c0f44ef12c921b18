"""The share store of a repository replica: key shares out of band, for subscribers that ask (P4, "Solution Analysis and
Adaptations").

Where an overlay has a repository, a publisher sends its keys there and not through the brokers: one share to each
replica of the repository. A subscriber pulls a share from each and combines a majority. A key then costs r messages,
and r for each subscriber, however long the content's path is; but subscribers must ask, and wait for the answer.

1. Property: a minority of the repository's replicas knows nothing of a key, and cannot withhold it.
   Reason: a key is dealt as to a virtual node, with a majority as its threshold.

2. Property: nobody but the publisher fills a store or replaces a share of its advertisement.
   Reason: the publisher first sends its advertisement, as to its edge node. Everything that it sends must be signed
   with the key certified there. A later attempt replaces an earlier one, and not the other way round.

3. Property: only a member that was granted the topic is sent a share, and no replica can ask the others in its name.
   Reason: a request is signed with the topic's subscriber key, and the signature covers the replica that is asked.

4. Shares are kept as long as their advertisement is valid, not only until they are forwarded. Against an adversary that
   moves from replica to replica that is worse than transfer through the brokers. The topic's key still protects the
   content in `hardened`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.keys.paper_split import SplitShare, TrailVerifier, split_key
from veilcast.brokers.keys.redistribution import DeliveredShare, deal_key
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
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
    key_attempt = KeyAttempt(name[1], attempt)
    if hardened:
        firsts = deal_key(shared, key_attempt, to, signing, entropy)
        blobs = [
            DeliveredShare(first.publisher_header, first.publisher_header.points, first.share).encode()
            for first in firsts
        ]
    else:
        blobs = [split_share.encode() for split_share in split_key(shared, key_attempt, to, signing, entropy)]
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

    def __init__(
        self, config: BrokerConfig, own_key: bytes, root: bytes, epoch_us: int, replica_keys: ReplicaKeys
    ) -> None:
        self._config, self._own_key, self._root, self._epoch_us, self._replica_keys = (
            config,
            own_key,
            root,
            epoch_us,
            replica_keys,
        )
        self._hardened = config.profile == "hardened"
        self._advertisements: dict[bytes, _StoredAdvertisement] = {}
        self._expiry: Timers[bytes] = Timers()
        self._waiting: dict[tuple[KeyName, Address], None] = {}
        self.outbox: list[tuple[Address, PushShare]] = []

    def __len__(self) -> int:
        return sum(len(stored_advertisement.shares) for stored_advertisement in self._advertisements.values())

    def sizes(self) -> dict[str, int]:
        return {"claims": len(self._advertisements), "keys": len(self), "waiting": len(self._waiting)}

    def claims_of(self, client: Address) -> int:
        return sum(stored_advertisement.client == client for stored_advertisement in self._advertisements.values())

    def add_advertisement(self, brought: BringClaim, client: Address, now: int) -> None:
        """Add a publisher's advertisement. The same one again, over another stream, only updates the client."""
        check_bring(brought, self._own_key)
        claim = brought.claim
        id_ = claim.id
        if id_ in self._advertisements:
            self._advertisements[id_].client = client
            return
        if len(self._advertisements) >= self._config.claims_max or self.claims_of(client) >= self._config.client_claims:
            raise ExcessError("no room for another advertisement, or none for another of this client")
        check_times(claim, self._hardened, self._epoch_us, self._config.lease_us, now)
        check_advertisement(claim, self._root)
        assert claim.chain is not None, "an advertisement shows its certificate"
        assert claim.reader is not None, "an advertisement names its subscriber key"
        self._advertisements[id_] = _StoredAdvertisement(client, claim.chain.leaf.subject, claim.reader)
        self._expiry.set(id_, claim.until_us)

    def store_share(self, push: PushShare, own_id: ReplicaId) -> None:
        """Store a share for this replica, in place of one of an earlier attempt."""
        stored_advertisement = self._find_advertisement(push.advertisement)
        key_attempt = self._check(push, own_id, stored_advertisement.publisher)
        stored = stored_advertisement.shares.get(push.key)
        if stored is not None and key_attempt.attempt <= stored.attempt:
            raise StaleError("a share that is here already, or of an earlier attempt")
        stored_advertisement.shares.pop(push.key, None)
        stored_advertisement.shares[push.key] = _StoredShare(key_attempt.attempt, push)
        while len(self) > self._config.keys_max:
            fullest = max(self._advertisements.values(), key=lambda other: len(other.shares))
            del fullest.shares[next(iter(fullest.shares))]
        name = (push.advertisement, push.key)
        for waiting in [each for each in self._waiting if each[0] == name]:
            del self._waiting[waiting]
            self.outbox.append((waiting[1], push))

    def answer_pull(self, pull: PullShare, client: Address) -> None:
        """Answer a subscriber that proves its permission: at once, or when the share arrives."""
        stored_advertisement = self._find_advertisement(pull.advertisement)
        verify(stored_advertisement.reader, pull.advertisement + pull.key + self._own_key, pull.proof, purpose=_PULL)
        stored = stored_advertisement.shares.get(pull.key)
        if stored is not None:
            self.outbox.append((client, stored.push))
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
        return self._expiry.next_us()

    def handle(self, now: int) -> None:
        """Erase expired advertisements and their shares."""
        for id_ in self._expiry.pop_due(now):
            del self._advertisements[id_]
            for waiting in [each for each in self._waiting if each[0][0] == id_]:
                del self._waiting[waiting]

    def _find_advertisement(self, id_: bytes) -> _StoredAdvertisement:
        if id_ not in self._advertisements:
            raise StaleError("under an advertisement that is not known here")
        return self._advertisements[id_]

    def _check(self, push: PushShare, own_id: ReplicaId, publisher: bytes) -> KeyAttempt:
        if self._hardened:
            delivery = DeliveredShare.decode(push.share)
            root = delivery.publisher_header
            root.check(publisher)
            if root.scheme != own_id.scheme or delivery.share.index != own_id.index or delivery.points != root.points:
                raise ForgedError("a share for another replica")
            verifiable_sharing.verify_share(delivery.share, root.commitments)
            key_attempt = root.key_attempt
        else:
            split_share = SplitShare.decode(push.share)
            if split_share.hops != 1 or split_share.holder != own_id:
                raise ForgedError("a share for another replica")
            TrailVerifier(publisher, self._replica_keys).check(split_share)
            key_attempt = split_share.key_attempt
        if key_attempt.key != push.key:
            raise ForgedError("a share of another key")
        return key_attempt


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

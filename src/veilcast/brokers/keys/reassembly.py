"""Keys at a subscriber: those that are complete, and those that are being reassembled share by share.

Shares come from the replicas of the edge node, of which fewer than half are Byzantine.

1. Property: the subscriber accepts no key but the publisher's.
   Reason: a share is stored only if its publisher signed for its key. The key is identified by the publisher's signed
   commitment, and is reconstructed from a majority's shares (`RedistributedKeyCollector`, `SplitKeyCollector`).

2. Property: replayed shares evict no key that an honest replica is sending, and no complete key.
   Reason: an incomplete key is charged to the replicas that sent shares of it, each within its own quota
   (`quota.ReplicaQuota`). Complete keys have a table of their own.

3. Property: no honest replica is blamed for what a Byzantine publisher dealt.
   Reason: neither attempts nor two dealings in one attempt mix. The last few attempts of each key are kept, and the
   first that completes counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.bulk_key import BulkOpener
from veilcast.brokers.keys.paper_split import TWO_STATEMENTS, SplitKeyCollector, SplitShare, TrailVerifier
from veilcast.brokers.keys.redistribution import DeliveredShare, RedistributedKeyCollector
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.quota import ItemName, ReplicaQuota
from veilcast.brokers.routing.subscriber_advertisements import KnownAdvertisement
from veilcast.crypto.secret import Secret
from veilcast.crypto.verifiable_sharing import Commitments
from veilcast.errors import RemoteError, StaleError

KeyName: TypeAlias = ItemName
"""The advertisement of a key, and the key's id."""


class KeyReassembly:
    """Bounded: the last `most` complete keys, and of each advertisement the last `KEYS_PER_ADVERTISEMENT`; the same
    number of incomplete keys, of which each replica of the node has an equal part (twice that, while the node changes).
    Each incomplete key has `ATTEMPTS_OPEN` attempts with one share of each replica (in `paper`, `SPLIT_SHARES_MAX`
    shares)."""

    def __init__(self, *, hardened: bool, replica_keys: ReplicaKeys, evidence: FaultEvidence, most: int) -> None:
        self._hardened, self._replica_keys, self._evidence, self._keys_max = hardened, replica_keys, evidence, most
        self._complete: dict[KeyName, _PendingKey] = {}
        self._pending: dict[KeyName, _PendingKey] = {}
        self._quota = ReplicaQuota(most)

    def __len__(self) -> int:
        """The larger of both numbers."""
        return max(len(self._complete), len(self._pending))

    def get(self, name: KeyName) -> BulkOpener | None:
        key = self._complete.get(name)
        return None if key is None else key.opener

    def add(self, advertisement: KnownAdvertisement, share: bytes, senders: Sequence[ReplicaId]) -> KeyName | None:
        """Add a share of a replica with these ids. Returns the key's name if this share completes it."""
        return (
            self._collect(advertisement, share, senders)
            if self._hardened
            else self._gather(advertisement, share, senders)
        )

    def end_advertisement(self, advertisement: bytes) -> None:
        self._complete = {name: key for name, key in self._complete.items() if name[0] != advertisement}
        for name in [name for name in self._pending if name[0] == advertisement]:
            self._remove_pending(name)

    def _collect(self, advertisement: KnownAdvertisement, share: bytes, senders: Sequence[ReplicaId]) -> KeyName | None:
        delivery = DeliveredShare.decode(share)
        threshold = Commitments.decode(delivery.points).threshold
        fitting = [replica_id for replica_id in senders if replica_id.scheme.threshold == threshold]
        sender = _first_replica(
            [replica_id for replica_id in fitting if replica_id.index == delivery.share.index] or fitting
        )
        key_attempt = delivery.publisher_header.key_attempt
        name = (advertisement.id, key_attempt.key)
        key = self._complete.get(name) or self._pending.get(name) or _PendingKey()
        dealing = (key_attempt.attempt, delivery.publisher_header.points)
        if key.opener is not None and key.dealing != dealing:
            return None  # Another dealing, for other subscribers.
        collector = key.collectors.get(dealing) or RedistributedKeyCollector(key_attempt, advertisement.publisher)
        known = collector.faulty
        try:
            secret = collector.add(delivery, sender)
        except RemoteError:
            if sender in collector.faulty:  # And not the publisher, for its dealing.
                self._evidence.record(sender, FaultReason.BAD_DEALT_SHARE)
            raise
        # A replica with a valid share of another sharing may have been cut off from the others during their agreement.
        # That is no proof.
        self._evidence.record_all([other for other in collector.faulty if other not in known], FaultReason.LATE)
        if key.points.get(sender.scheme, delivery.points) != delivery.points:
            self._evidence.record(sender, FaultReason.LATE)
            raise StaleError("a share of a sharing that a majority does not have")
        if key.opener is None:
            _keep_newest(key.collectors, dealing, collector)
            if secret is not None:
                key.points[sender.scheme] = delivery.points
                return self._complete_key(name, key, dealing, secret)
            self._store(name, key, sender)
        return None

    def _gather(self, advertisement: KnownAdvertisement, share: bytes, senders: Sequence[ReplicaId]) -> KeyName | None:
        split_share = SplitShare.decode(share)
        sender = _first_replica(
            [replica_id for replica_id in senders if replica_id.scheme == split_share.holder.scheme]
        )
        key_attempt = split_share.key_attempt
        name = (advertisement.id, key_attempt.key)
        key = self._complete.get(name) or self._pending.get(name) or _PendingKey()
        dealing = (key_attempt.attempt, b"")
        if key.opener is not None and key.dealing != dealing:
            return None
        if key.verifier is None:
            key.verifier = TrailVerifier(advertisement.publisher, self._replica_keys)
        gatherer = key.gatherers.get(dealing) or SplitKeyCollector(key_attempt, key.verifier, most=SPLIT_SHARES_MAX)
        known = gatherer.faulty
        try:
            secret = gatherer.add(split_share, sender)
        finally:
            for replica, how in gatherer.faulty.items():
                if replica not in known:
                    self._evidence.record(
                        replica, FaultReason.TWO_DEALINGS if how == TWO_STATEMENTS else FaultReason.BAD_SPLIT_SHARE
                    )
        if key.opener is None:
            _keep_newest(key.gatherers, dealing, gatherer)
            if secret is not None:
                return self._complete_key(name, key, dealing, secret)
            self._store(name, key, sender)
        return None

    def _store(self, name: KeyName, key: _PendingKey, sender: ReplicaId) -> None:
        """Store an incomplete key that its publisher signed for."""
        self._pending[name] = key
        for other in self._quota.charge(name, sender):
            del self._pending[other]

    def _remove_pending(self, name: KeyName) -> None:
        self._quota.release(name)
        self._pending.pop(name, None)

    def _complete_key(self, name: KeyName, key: _PendingKey, dealing: _DealingId, secret: Secret) -> KeyName:
        """From now on only the hash chain is kept, which goes forward. Late shares are only checked."""
        key.opener, key.dealing = BulkOpener(name[1], secret), dealing
        key.collectors, key.gatherers = {}, {}
        self._remove_pending(name)
        alike = [other for other in self._complete if other[0] == name[0]]
        if len(alike) >= KEYS_PER_ADVERTISEMENT:
            del self._complete[alike[0]]
        elif len(self._complete) >= self._keys_max:
            del self._complete[next(iter(self._complete))]
        self._complete[name] = key
        return name


_DealingId: TypeAlias = tuple[int, bytes]
"""An attempt to transfer a key; in `hardened` with the commitments that the publisher signed."""


@dataclass(slots=True)
class _PendingKey:
    opener: BulkOpener | None = None
    dealing: _DealingId = (0, b"")
    """The dealing that completed the key."""
    collectors: dict[_DealingId, RedistributedKeyCollector] = field(default_factory=dict)
    gatherers: dict[_DealingId, SplitKeyCollector] = field(default_factory=dict)
    points: dict[Scheme, bytes] = field(default_factory=dict)
    """The sharing that completed the key."""
    verifier: TrailVerifier | None = None


Collector = TypeVar("Collector")


def _keep_newest(attempts: dict[_DealingId, Collector], dealing: _DealingId, collector: Collector) -> None:
    """Keep the last few attempts of a key."""
    attempts[dealing] = collector
    while len(attempts) > ATTEMPTS_OPEN:
        del attempts[min(attempts)]


def _first_replica(replicas: Sequence[ReplicaId]) -> ReplicaId:
    """A replica of a changing node may have an id in two schemes; the first one counts."""
    if not replicas:
        raise StaleError("a share under a scheme that is not known here")
    return replicas[0]


KEYS_PER_ADVERTISEMENT: Final = 128
ATTEMPTS_OPEN: Final = 3
SPLIT_SHARES_MAX: Final = 1 << 14
"""`paper` only, shares of one key: r^h of them arrive over h hops of r replicas."""

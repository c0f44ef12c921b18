"""Keys at a subscriber: those that are complete, and those that are being reassembled share by share.

Shares come from the replicas of the edge node. No single share is trusted: the key is identified by the publisher's
signed commitment, and is reconstructed from a majority's shares (`KeyCollector`, `KeyGatherer`). A share is stored only
if its publisher signed for its key. Old shares can be replayed. So an incomplete key is charged to the replicas that
sent shares of it, each within its own quota (`quota.ReplicaQuota`), and never evicts a complete key. Attempts never
mix: the last few attempts of each key are kept, and the first that completes counts. Nor do two dealings of a Byzantine
publisher in one attempt mix: its brokers are not to blame for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.bulk import BulkOpener
from veilcast.brokers.keys.paper_split import TWO_STATEMENTS, KeyGatherer, SplitShare, TrailVerifier
from veilcast.brokers.keys.redistribution import DeliveredShare, KeyCollector
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.quota import ItemName, ReplicaQuota
from veilcast.brokers.routing.known_advertisements import KnownAdvertisement
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

    def __init__(self, *, hardened: bool, roster: ReplicaKeys, suspicions: FaultEvidence, most: int) -> None:
        self._hardened, self._roster, self._suspicions, self._most = hardened, roster, suspicions, most
        self._opened: dict[KeyName, _PendingKey] = {}
        self._pending: dict[KeyName, _PendingKey] = {}
        self._holds = ReplicaQuota(most)

    def __len__(self) -> int:
        """The larger of both numbers."""
        return max(len(self._opened), len(self._pending))

    def get(self, name: KeyName) -> BulkOpener | None:
        key = self._opened.get(name)
        return None if key is None else key.opening

    def add(self, advert: KnownAdvertisement, share: bytes, bearers: Sequence[ReplicaId]) -> KeyName | None:
        """Add a share of a replica with these ids. Returns the key's name if this share completes it."""
        return self._collect(advert, share, bearers) if self._hardened else self._gather(advert, share, bearers)

    def end_advertisement(self, advertisement: bytes) -> None:
        self._opened = {name: key for name, key in self._opened.items() if name[0] != advertisement}
        for name in [name for name in self._pending if name[0] == advertisement]:
            self._leave(name)

    def _collect(self, advert: KnownAdvertisement, share: bytes, bearers: Sequence[ReplicaId]) -> KeyName | None:
        delivery = DeliveredShare.decode(share)
        threshold = Commitments.decode(delivery.points).threshold
        fitting = [place for place in bearers if place.scheme.threshold == threshold]
        bearer = _first_replica([place for place in fitting if place.index == delivery.share.index] or fitting)
        origin = delivery.publisher_header.key_attempt
        name = (advert.id, origin.key)
        key = self._opened.get(name) or self._pending.get(name) or _PendingKey()
        dealt = (origin.attempt, delivery.publisher_header.points)
        if key.opening is not None and key.dealt != dealt:
            return None  # Dealt again, for others.
        collecting = key.collecting.get(dealt) or KeyCollector(origin, advert.publisher)
        known = collecting.faulty
        try:
            secret = collecting.add(delivery, bearer)
        except RemoteError:
            if bearer in collecting.faulty:  # And not the publisher, for what it dealt.
                self._suspicions.record(bearer, FaultReason.BAD_DEALT_SHARE)
            raise
        # Who holds, as it must, a share of a sharing that the others do not have may have been cut off from them when
        # they agreed. That is no proof.
        self._suspicions.record_all([other for other in collecting.faulty if other not in known], FaultReason.LATE)
        if key.points.get(bearer.scheme, delivery.points) != delivery.points:
            self._suspicions.record(bearer, FaultReason.LATE)
            raise StaleError("a share of a sharing that a majority does not have")
        if key.opening is None:
            _keep_newest(key.collecting, dealt, collecting)
            if secret is not None:
                key.points[bearer.scheme] = delivery.points
                return self._open(name, key, dealt, secret)
            self._keep(name, key, bearer)
        return None

    def _gather(self, advert: KnownAdvertisement, share: bytes, bearers: Sequence[ReplicaId]) -> KeyName | None:
        parcel = SplitShare.decode(share)
        bearer = _first_replica([place for place in bearers if place.scheme == parcel.holder.scheme])
        origin = parcel.key_attempt
        name = (advert.id, origin.key)
        key = self._opened.get(name) or self._pending.get(name) or _PendingKey()
        dealt = (origin.attempt, b"")
        if key.opening is not None and key.dealt != dealt:
            return None
        if key.trails is None:
            key.trails = TrailVerifier(advert.publisher, self._roster)
        gathering = key.gathering.get(dealt) or KeyGatherer(origin, key.trails, most=SPLIT_SHARES_MAX)
        known = gathering.faulty
        try:
            secret = gathering.add(parcel, bearer)
        finally:
            for liar, how in gathering.faulty.items():
                if liar not in known:
                    self._suspicions.record(
                        liar, FaultReason.TWO_DEALINGS if how == TWO_STATEMENTS else FaultReason.BAD_SPLIT_SHARE
                    )
        if key.opening is None:
            _keep_newest(key.gathering, dealt, gathering)
            if secret is not None:
                return self._open(name, key, dealt, secret)
            self._keep(name, key, bearer)
        return None

    def _keep(self, name: KeyName, key: _PendingKey, bearer: ReplicaId) -> None:
        """Store an incomplete key that its publisher signed for."""
        self._pending[name] = key
        for other in self._holds.charge(name, bearer):
            del self._pending[other]

    def _leave(self, name: KeyName) -> None:
        self._holds.release(name)
        self._pending.pop(name, None)

    def _open(self, name: KeyName, key: _PendingKey, dealt: _DealingId, secret: Secret) -> KeyName:
        """From now on only the hash chain is kept, which goes forward. Late shares are only checked."""
        key.opening, key.dealt = BulkOpener(name[1], secret), dealt
        key.collecting, key.gathering = {}, {}
        self._leave(name)
        alike = [other for other in self._opened if other[0] == name[0]]
        if len(alike) >= KEYS_PER_ADVERTISEMENT:
            del self._opened[alike[0]]
        elif len(self._opened) >= self._most:
            del self._opened[next(iter(self._opened))]
        self._opened[name] = key
        return name


_DealingId: TypeAlias = tuple[int, bytes]
"""An attempt to transfer a key; in `hardened` with the commitments that the publisher signed."""


@dataclass(slots=True)
class _PendingKey:
    opening: BulkOpener | None = None
    dealt: _DealingId = (0, b"")
    """The dealing that completed the key."""
    collecting: dict[_DealingId, KeyCollector] = field(default_factory=dict)
    gathering: dict[_DealingId, KeyGatherer] = field(default_factory=dict)
    points: dict[Scheme, bytes] = field(default_factory=dict)
    """The sharing that completed the key."""
    trails: TrailVerifier | None = None


Collector = TypeVar("Collector")


def _keep_newest(attempts: dict[_DealingId, Collector], dealt: _DealingId, what: Collector) -> None:
    """Keep the last few attempts of a key."""
    attempts[dealt] = what
    while len(attempts) > ATTEMPTS_OPEN:
        del attempts[min(attempts)]


def _first_replica(places: Sequence[ReplicaId]) -> ReplicaId:
    """A replica of a changing node may have an id in two schemes; the first one counts."""
    if not places:
        raise StaleError("a share under a scheme that is not known here")
    return places[0]


KEYS_PER_ADVERTISEMENT: Final = 128
ATTEMPTS_OPEN: Final = 3
SPLIT_SHARES_MAX: Final = 1 << 14
"""`paper` only, shares of one key: r^h of them arrive over h hops of r replicas."""

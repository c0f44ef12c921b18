"""Openings: the keys that a reader has been brought, or is being brought, share by share.

Pure. Shares come from the replicas of the edge node; each is one replica's word, and none is believed alone: the key is
known by the publisher's signed commitment, and comes out of a majority's shares (`KeyCollector`, `KeyGatherer`).
Nothing is
remembered for a share whose publisher did not sign for its key. Shares of long ago can be repeated: so a key that is on
its way is held by who brought shares of it, each in a part of the room that is its own (`holds`), and takes none from
keys that are at hand. Attempts never mix; the last few of each key are open, and the first that comes out is it. Nor
does what a publisher that lies dealt twice in one attempt: its brokers are not to be blamed for that.
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
"""Of a key: the advertisement, and its id there."""


class KeyReassembly:
    """Bounded: the last `most` keys that came out, and the last `KEYS_PER_ADVERTISEMENT` of each advertisement; and as
    many that are
    on their way, of which each replica of the node holds an equal part (twice that, while the node changes). Of each of
    these `ATTEMPTS_OPEN` are open, with one share of each replica (in `paper`, `SPLIT_SHARES_MAX`)."""

    def __init__(self, *, hardened: bool, roster: ReplicaKeys, suspicions: FaultEvidence, most: int) -> None:
        self._hardened, self._roster, self._suspicions, self._most = hardened, roster, suspicions, most
        self._opened: dict[KeyName, _PendingKey] = {}
        self._pending: dict[KeyName, _PendingKey] = {}
        self._holds = ReplicaQuota(most)

    def __len__(self) -> int:
        """The fuller of both."""
        return max(len(self._opened), len(self._pending))

    def get(self, name: KeyName) -> BulkOpener | None:
        key = self._opened.get(name)
        return None if key is None else key.opening

    def add(self, advert: KnownAdvertisement, share: bytes, bearers: Sequence[ReplicaId]) -> KeyName | None:
        """Take a share of a replica that has these places; the key's name, if it is at hand only now."""
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
        """Remember a key that its publisher signed for, and that is on its way."""
        self._pending[name] = key
        for other in self._holds.charge(name, bearer):
            del self._pending[other]

    def _leave(self, name: KeyName) -> None:
        self._holds.release(name)
        self._pending.pop(name, None)

    def _open(self, name: KeyName, key: _PendingKey, dealt: _DealingId, secret: Secret) -> KeyName:
        """From now on there is nothing but the chain, which goes forward: shares that come late are only checked."""
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
"""An attempt to bring a key over; in `hardened` with the commitments that the publisher signed."""


@dataclass(slots=True)
class _PendingKey:
    opening: BulkOpener | None = None
    dealt: _DealingId = (0, b"")
    """How it came."""
    collecting: dict[_DealingId, KeyCollector] = field(default_factory=dict)
    gathering: dict[_DealingId, KeyGatherer] = field(default_factory=dict)
    points: dict[Scheme, bytes] = field(default_factory=dict)
    """The sharing that it came out of."""
    trails: TrailVerifier | None = None


Collector = TypeVar("Collector")


def _keep_newest(attempts: dict[_DealingId, Collector], dealt: _DealingId, what: Collector) -> None:
    """Of the attempts of a key, the last few."""
    attempts[dealt] = what
    while len(attempts) > ATTEMPTS_OPEN:
        del attempts[min(attempts)]


def _first_replica(places: Sequence[ReplicaId]) -> ReplicaId:
    """Of a node that changes, a replica may have a place in two schemes."""
    if not places:
        raise StaleError("a share under a scheme that is not known here")
    return places[0]


KEYS_PER_ADVERTISEMENT: Final = 128
ATTEMPTS_OPEN: Final = 3
SPLIT_SHARES_MAX: Final = 1 << 14
"""In `paper`, of one key: r^h of them come over h hops of r replicas."""

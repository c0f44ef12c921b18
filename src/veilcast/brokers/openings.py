"""Openings: the keys that a reader has been brought, or is being brought, share by share.

Pure. Shares come from the replicas of the edge node; each is one replica's word, and none is believed alone: the key is
known by the publisher's signed commitment, and comes out of a majority's shares (`Collecting`, `Gathering`). Nothing is
remembered for a share whose publisher did not sign for its key. Shares of long ago can be repeated: so a key that is on
its way is held by who brought shares of it, each in a part of the room that is its own (`holds`), and takes none from
keys that are at hand. Attempts never mix; the last few of each key are open, and the first that comes out is it. Nor
does what a publisher that lies dealt twice in one attempt: its brokers are not to be blamed for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from veilcast.brokers.adverts import Advert
from veilcast.brokers.holds import Held, Holds
from veilcast.brokers.sharing.bulk import Opening
from veilcast.brokers.sharing.gathering import TWO_FACES, Gathering
from veilcast.brokers.sharing.paper import Parcel, Trails
from veilcast.brokers.sharing.redistribution import Collecting, Delivery
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.brokers.standing import Reason, Suspicions
from veilcast.crypto.dealing import Commitments
from veilcast.crypto.secret import Secret
from veilcast.errors import RemoteError, StaleError

Name: TypeAlias = Held
"""Of a key: the advertisement, and its id there."""


class Openings:
    """Bounded: the last `most` keys that came out, and the last `KEYS_EACH` of each advertisement; and as many that are
    on their way, of which each replica of the node holds an equal part (twice that, while the node changes). Of each of
    these `ATTEMPTS_OPEN` are open, with one share of each replica (in `paper`, `PIECES_MAX`)."""

    def __init__(self, *, hardened: bool, roster: Roster, suspicions: Suspicions, most: int) -> None:
        self._hardened, self._roster, self._suspicions, self._most = hardened, roster, suspicions, most
        self._opened: dict[Name, _Key] = {}
        self._pending: dict[Name, _Key] = {}
        self._holds = Holds(most)

    def __len__(self) -> int:
        """The fuller of both."""
        return max(len(self._opened), len(self._pending))

    def get(self, name: Name) -> Opening | None:
        key = self._opened.get(name)
        return None if key is None else key.opening

    def add(self, advert: Advert, share: bytes, bearers: Sequence[Place]) -> Name | None:
        """Take a share of a replica that has these places; the key's name, if it is at hand only now."""
        return self._collect(advert, share, bearers) if self._hardened else self._gather(advert, share, bearers)

    def end(self, advertisement: bytes) -> None:
        self._opened = {name: key for name, key in self._opened.items() if name[0] != advertisement}
        for name in [name for name in self._pending if name[0] == advertisement]:
            self._leave(name)

    def _collect(self, advert: Advert, share: bytes, bearers: Sequence[Place]) -> Name | None:
        delivery = Delivery.decode(share)
        threshold = Commitments.decode(delivery.points).threshold
        fitting = [place for place in bearers if place.scheme.threshold == threshold]
        bearer = _first([place for place in fitting if place.index == delivery.share.index] or fitting)
        origin = delivery.root.origin
        name = (advert.id, origin.key)
        key = self._opened.get(name) or self._pending.get(name) or _Key()
        dealt = (origin.attempt, delivery.root.points)
        if key.opening is not None and key.dealt != dealt:
            return None  # Dealt again, for others.
        collecting = key.collecting.get(dealt) or Collecting(origin, advert.publisher)
        known = collecting.liars
        try:
            secret = collecting.add(delivery, bearer)
        except RemoteError:
            if bearer in collecting.liars:  # And not the publisher, for what it dealt.
                self._suspicions.accuse(bearer, Reason.PORTION)
            raise
        # Who holds, as it must, a share of a sharing that the others do not have may have been cut off from them when
        # they agreed. That is no proof.
        self._suspicions.accuse_all([other for other in collecting.liars if other not in known], Reason.LATE)
        if key.points.get(bearer.scheme, delivery.points) != delivery.points:
            self._suspicions.accuse(bearer, Reason.LATE)
            raise StaleError("a share of a sharing that a majority does not have")
        if key.opening is None:
            _newest(key.collecting, dealt, collecting)
            if secret is not None:
                key.points[bearer.scheme] = delivery.points
                return self._open(name, key, dealt, secret)
            self._keep(name, key, bearer)
        return None

    def _gather(self, advert: Advert, share: bytes, bearers: Sequence[Place]) -> Name | None:
        parcel = Parcel.decode(share)
        bearer = _first([place for place in bearers if place.scheme == parcel.holder.scheme])
        origin = parcel.origin
        name = (advert.id, origin.key)
        key = self._opened.get(name) or self._pending.get(name) or _Key()
        dealt = (origin.attempt, b"")
        if key.opening is not None and key.dealt != dealt:
            return None
        if key.trails is None:
            key.trails = Trails(advert.publisher, self._roster)
        gathering = key.gathering.get(dealt) or Gathering(origin, key.trails, most=PIECES_MAX)
        known = gathering.liars
        try:
            secret = gathering.add(parcel, bearer)
        finally:
            for liar, how in gathering.liars.items():
                if liar not in known:
                    self._suspicions.accuse(liar, Reason.TWO_DEALINGS if how == TWO_FACES else Reason.PIECE)
        if key.opening is None:
            _newest(key.gathering, dealt, gathering)
            if secret is not None:
                return self._open(name, key, dealt, secret)
            self._keep(name, key, bearer)
        return None

    def _keep(self, name: Name, key: _Key, bearer: Place) -> None:
        """Remember a key that its publisher signed for, and that is on its way."""
        self._pending[name] = key
        for other in self._holds.hold(name, bearer):
            del self._pending[other]

    def _leave(self, name: Name) -> None:
        self._holds.drop(name)
        self._pending.pop(name, None)

    def _open(self, name: Name, key: _Key, dealt: _Dealt, secret: Secret) -> Name:
        """From now on there is nothing but the chain, which goes forward: shares that come late are only checked."""
        key.opening, key.dealt = Opening(name[1], secret), dealt
        key.collecting, key.gathering = {}, {}
        self._leave(name)
        alike = [other for other in self._opened if other[0] == name[0]]
        if len(alike) >= KEYS_EACH:
            del self._opened[alike[0]]
        elif len(self._opened) >= self._most:
            del self._opened[next(iter(self._opened))]
        self._opened[name] = key
        return name


_Dealt: TypeAlias = tuple[int, bytes]
"""An attempt to bring a key over; in `hardened` with the commitments that the publisher signed."""


@dataclass(slots=True)
class _Key:
    opening: Opening | None = None
    dealt: _Dealt = (0, b"")
    """How it came."""
    collecting: dict[_Dealt, Collecting] = field(default_factory=dict)
    gathering: dict[_Dealt, Gathering] = field(default_factory=dict)
    points: dict[Scheme, bytes] = field(default_factory=dict)
    """The sharing that it came out of."""
    trails: Trails | None = None


What = TypeVar("What")


def _newest(attempts: dict[_Dealt, What], dealt: _Dealt, what: What) -> None:
    """Of the attempts of a key, the last few."""
    attempts[dealt] = what
    while len(attempts) > ATTEMPTS_OPEN:
        del attempts[min(attempts)]


def _first(places: Sequence[Place]) -> Place:
    """Of a node that changes, a replica may have a place in two schemes."""
    if not places:
        raise StaleError("a share under a scheme that is not known here")
    return places[0]


KEYS_EACH: Final = 128
ATTEMPTS_OPEN: Final = 3
PIECES_MAX: Final = 1 << 14
"""In `paper`, of one key: r^h of them come over h hops of r replicas."""

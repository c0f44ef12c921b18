"""Renewal of a client's claims from period to period, without a gap.

All topics that the member may publish on are advertised, whether or not it publishes: subscriptions then travel before
the first publication does. Each subscription is claimed. The claims of the next period are sent some time before it
begins, at random times for each of them. The claims of the last period expire by themselves.

A claim and the key that withdraws it are derived from the membership's secret. So they are the same after every
restart: a restarted client adds nothing to what brokers know. A withdrawn claim is final, and the same subscription in
the same period needs another claim. So the number of withdrawals is stored on disk before a withdrawal is sent. Nothing
else needs to be stored.

A claim takes a while to be known along its route, from when a majority of the edge node's replicas have it. A publisher
waits `spread_us` before it publishes under an advertisement. A subscriber waits `spread_us` before it reports a
subscription as in force. So every later publication reaches it.

Validity periods: in `hardened` a period is an epoch, whose keys its claims are made with. In `paper` a topic has one
key for ever, and a period is half a lease. A claim is valid for one period more than its own. So a client that renews
in time has two valid claims at every moment, and clock differences do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.routing import claims
from veilcast.core.member_topics import MemberTopics
from veilcast.core.subscriptions import SharedInterest, Subscriptions
from veilcast.core.timers import Timers
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Event, Publication, Record
from veilcast.topics import Conjunction
from veilcast.wire.brokers import Claim, WithdrawClaim


class ValidityPeriod(NamedTuple):
    """From `from_us` to `end_us`. Its claims expire at `expiry_us`. `epoch` is the epoch of the keys."""

    number: int
    epoch: int
    from_us: int
    end_us: int
    expiry_us: int


class ValidityPeriods:
    """The successive periods of this profile."""

    def __init__(self, profile: Profile, epoch_us: int, lease_us: int) -> None:
        self._epoch_us = epoch_us
        self._length_us = epoch_us if profile == "hardened" else max(1, lease_us // 2)

    def at(self, now: int) -> ValidityPeriod:
        return self._span(now // self._length_us)

    def after(self, span: ValidityPeriod) -> ValidityPeriod:
        return self._span(span.number + 1)

    def _span(self, number: int) -> ValidityPeriod:
        start, length = number * self._length_us, self._length_us
        turn = start + length
        return ValidityPeriod(number, epoch_of(turn - 1, self._epoch_us), start, turn, turn + length)


class OwnedClaim(NamedTuple):
    """A claim to be sent to brokers, and the key that proves its ownership."""

    claim: Claim
    holder: SigningKey


class ActiveAdvertisement(NamedTuple):
    """The advertisement to publish under, usable from `ready_us` on."""

    claim: Claim
    keys: TopicKeys
    ready_us: int


class ClaimRenewal:
    """Bounded: three claims for each topic that the member may publish on, and for each of `subscriptions_max`
    subscriptions.

    Its durable record is `WITHDRAWALS_RECORD`; `stored` is the record of an earlier run.
    """

    def __init__(
        self,
        config: BrokerClientConfig,
        spans: ValidityPeriods,
        topics: MemberTopics,
        language: ClaimEncoder,
        edge: bytes,
        secret: Secret,
        say: Callable[[OwnedClaim | WithdrawClaim], None],
        rng: Random,
        now: int,
        stored: bytes | None = None,
    ) -> None:
        self._config, self._spans, self._topics, self._language, self._edge = config, spans, topics, language, edge
        self._key, self._say, self._rng = derive(secret, b"vc/brokers-claim"), say, rng
        self.subscriptions = Subscriptions(config.subscriptions_max)
        self._advertised: dict[str, _ClaimSeries] = {}
        self._wanted: dict[bytes, _ClaimSeries] = {}
        self._again: dict[tuple[bytes, int], int] = {} if stored is None else _decode_withdrawals(stored)
        """How often a subscription was withdrawn in a period."""
        self._ending: list[WithdrawClaim] = []
        self._record: Record | None = None
        self._alarms: Timers[_TimerName] = Timers()
        self._linked = False
        self._turn(now)

    def __len__(self) -> int:
        return sum(len(row.claims) for row in self._rows())

    # --- the owner

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> SharedInterest:
        """Add a subscription; `LocalError` for one that can never be claimed."""
        self._language.encode_subscription(self._topics.keys(topic, self._spans.at(now).epoch), interest)
        wish = self.subscriptions.add(number, topic, interest, now)
        if wish.key not in self._wanted:
            self._wanted[wish.key] = _ClaimSeries(wish.key, topic, wish)
            self._complete(self._wanted[wish.key], now)
        return wish

    def remove(self, number: int) -> None:
        wish = self.subscriptions.remove(number)
        if wish in self.subscriptions:
            return
        row = self._wanted.pop(wish.key)
        self._alarms.cancel((row.name, None))
        for span, made in row.claims.items():
            self._alarms.cancel((row.name, span))
            if made.sent:
                place = (_series_digest(row.name), span.number)
                self._again[place] = self._again.get(place, 0) + 1
                self._ending.append(claims.make_withdraw(made.claim.id, made.holder))
        if self._ending:
            self._record = Record(WITHDRAWALS_RECORD, _encode_withdrawals(self._again))

    def stored(self) -> None:
        """The withdrawal counts are on disk."""
        ending, self._ending = self._ending, []
        for withdraw in ending:
            self._say(withdraw)

    def next_event(self) -> Event | None:
        if self.subscriptions.notices:
            return self.subscriptions.notices.pop(0)
        record, self._record = self._record, None
        return record

    # --- what others ask

    def set_connected(self, linked: bool, now: int) -> None:
        """Whether a majority of the edge node's replicas is connected."""
        if linked == self._linked:
            return
        self._linked = linked
        if linked:
            for row in self._rows():
                for made in row.claims.values():
                    self._known(row, made, now)

    def active_advertisement(self, topic: str, now: int) -> ActiveAdvertisement | None:
        """The advertisement to publish under on this topic; None without a grant, or while too few brokers are
        connected."""
        row = self._advertised.get(topic)
        made = None if row is None else row.claims.get(self._spans.at(now))
        if made is None or made.known_us is None:
            return None
        return ActiveAdvertisement(made.claim, made.keys, made.known_us + self._config.spread_us)

    def active_claims(self, now: int) -> list[OwnedClaim]:
        """All claims that a broker without state about this client must get."""
        made = [made for row in self._rows() for made in row.claims.values()]
        return [OwnedClaim(each.claim, each.holder) for each in made if each.sent and each.claim.until_us > now]

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for name, span in self._alarms.pop_due(now):
            if name is None:
                self._turn(now)
            elif span is not None:
                self._send(self._row(name), span, now)
            elif (wish := self._row(name).subscription) is not None:
                self.subscriptions.activate(wish, now)

    # --- inside

    def _turn(self, now: int) -> None:
        """A period begins: drop expired claims, and prepare the next ones."""
        span = self._spans.at(now)
        self._alarms.set((None, None), span.end_us)
        self._again = {place: times for place, times in self._again.items() if place[1] >= span.number}
        for each in (span, self._spans.after(span)):
            for topic in self._published(each.epoch):
                self._advertised.setdefault(topic, _ClaimSeries(_ADVERTISEMENT_PREFIX + topic.encode(), topic))
        for row in self._rows():
            row.claims = {of: made for of, made in row.claims.items() if of.expiry_us > now}
            self._complete(row, now)
        self._advertised = {topic: row for topic, row in self._advertised.items() if row.claims}

    def _complete(self, row: _ClaimSeries, now: int) -> None:
        """Claim this period at once, and schedule the next one."""
        span = self._spans.at(now)
        following = self._spans.after(span)
        if span not in row.claims:
            self._make(row, span)
        if span in row.claims and not row.claims[span].sent:
            self._alarms.cancel((row.name, span))
            self._send(row, span, now)
        if following not in row.claims and self._make(row, following):
            self._alarms.set((row.name, following), self._moment(span, now))

    def _moment(self, span: ValidityPeriod, now: int) -> int:
        """Time to send the claim of the next period: after the middle of this one, and at least `ahead_us` before its
        end."""
        first = max(now, (span.from_us + span.end_us) // 2)
        last = max(first, span.end_us - self._config.ahead_us)
        return first + self._rng.randrange(last - first + 1)

    def _make(self, row: _ClaimSeries, span: ValidityPeriod) -> bool:
        """False if the grant does not reach that far or does not allow it."""
        holder = self._holder(row.name, span)
        try:
            keys = self._topics.keys(row.topic, span.epoch)
            if row.subscription is None:
                words, make = self._language.encode_advertisement(keys), claims.make_advertisement
            else:
                words, make = (
                    self._language.encode_subscription(keys, row.subscription.interest),
                    claims.make_subscription,
                )
            claim = make(keys, self._edge, span.epoch, span.expiry_us, words, holder.public)
        except LocalError:
            return False
        row.claims[span] = _PeriodClaim(claim, keys, holder)
        return True

    def _send(self, row: _ClaimSeries, span: ValidityPeriod, now: int) -> None:
        made = row.claims[span]
        made.sent = True
        self._say(OwnedClaim(made.claim, made.holder))
        if self._linked:
            self._known(row, made, now)

    def _known(self, row: _ClaimSeries, made: _PeriodClaim, now: int) -> None:
        """The claim has reached the brokers, and spreads from there."""
        if made.sent and made.known_us is None:
            made.known_us = now
            if row.subscription is not None and not row.subscription.is_active and (row.name, None) not in self._alarms:
                self._alarms.set((row.name, None), now + self._config.spread_us)

    def _holder(self, name: bytes, span: ValidityPeriod) -> SigningKey:
        times = self._again.get((_series_digest(name), span.number), 0)
        place = span.number.to_bytes(8, "big") + times.to_bytes(4, "big")
        return SigningKey(derive(self._key, b"vc/claim-holder", name, place))

    def _published(self, epoch: int) -> list[str]:
        try:
            return self._topics.publishable(epoch)
        except LocalError:
            return []  # Our membership does not reach that far.

    def _row(self, name: bytes) -> _ClaimSeries:
        return (
            self._wanted[name]
            if name in self._wanted
            else self._advertised[name[len(_ADVERTISEMENT_PREFIX) :].decode()]
        )

    def _rows(self) -> list[_ClaimSeries]:
        """All series, advertisements first: brokers need them to check subscriptions."""
        return [*self._advertised.values(), *self._wanted.values()]


class ClaimEncoder(Protocol):
    """The members' half of a `PredicateCodec`."""

    def encode_advertisement(self, keys: TopicKeys) -> bytes: ...

    def encode_subscription(self, keys: TopicKeys, interest: Conjunction) -> bytes: ...

    def encode_publication(self, keys: TopicKeys, publication: Publication) -> bytes: ...


@dataclass(slots=True)
class _PeriodClaim:
    claim: Claim
    keys: TopicKeys
    holder: SigningKey
    sent: bool = False
    known_us: int | None = None


@dataclass(slots=True)
class _ClaimSeries:
    """The claims of one published topic or of one subscription, by period."""

    name: bytes
    topic: str
    subscription: SharedInterest | None = None
    claims: dict[ValidityPeriod, _PeriodClaim] = field(default_factory=dict)


def merge_withdrawal_records(stored: Iterable[bytes]) -> bytes:
    """Merge the records of several clients of one member: the result skips every claim that any of them has used."""
    most: dict[tuple[bytes, int], int] = {}
    for data in stored:
        for place, times in _decode_withdrawals(data).items():
            most[place] = max(times, most.get(place, 0))
    return _encode_withdrawals(most)


def _encode_withdrawals(again: Mapping[tuple[bytes, int], int]) -> bytes:
    return _ENCODER.encode([(*place, times) for place, times in again.items()])


def _series_digest(name: bytes) -> bytes:
    return digest(name, purpose=b"vc/claimed", size=16)


def _decode_withdrawals(stored: bytes) -> dict[tuple[bytes, int], int]:
    return {(name, span): times for name, span, times in _DECODER.decode(stored)}


_TimerName: TypeAlias = tuple[bytes | None, ValidityPeriod | None]
"""(series, period): send that claim; (series, None): the subscription is in force; (None, None): the period ends."""

_ADVERTISEMENT_PREFIX: Final = b"advertised "
"""No subscription is encoded like this: those begin with a list of two."""

WITHDRAWALS_RECORD: Final = 1
"""Number of the record of withdrawal counts. Records of publications have larger numbers."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    list[tuple[bytes, int, int]], TamperedError, "a record of claims that were withdrawn is damaged"
)

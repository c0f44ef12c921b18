"""Renewal of a client's claims from period to period, without a gap.

All topics that the member may publish on are advertised, whether or not it publishes: subscriptions then travel before
the first publication does. Each subscription is claimed. In `hardened` a validity period is an epoch, whose keys its
claims are made with. A topic has one key for ever in `paper`, and a period is half a lease.

1. Property: at every moment the client has a valid claim, although clocks differ.
   Assumption: the client is up in the second half of the period before, or sends at once when it starts.
   Reason: a claim is valid for one period more than its own, and the next one is sent before its period begins, at a
   random time for each. So a client that renews in time has two valid claims, and the last one expires by itself.

2. Property: a restarted client adds nothing to what brokers know.
   Reason: a claim and the key that withdraws it are derived from the membership's secret, so they are the same again.

3. Property: a withdrawn claim is never used again.
   Reason: the same subscription in the same period gets another claim, by the number of withdrawals. This number is on
   the disk before a withdrawal is sent. Nothing else needs to be stored.

4. Property: every publication after a subscription is in force reaches it.
   Assumption: a claim is known along its route `spread_us` after a majority of the edge node's replicas have it.
   Reason: a subscriber waits that long before it reports a subscription as in force, and a publisher before it
   publishes under an advertisement.
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
        return self._period(now // self._length_us)

    def after(self, period: ValidityPeriod) -> ValidityPeriod:
        return self._period(period.number + 1)

    def _period(self, number: int) -> ValidityPeriod:
        start, length = number * self._length_us, self._length_us
        end = start + length
        return ValidityPeriod(number, epoch_of(end - 1, self._epoch_us), start, end, end + length)


class OwnedClaim(NamedTuple):
    """A claim to be sent to brokers, and the key that proves its ownership."""

    claim: Claim
    holder: SigningKey


class ActiveAdvertisement(NamedTuple):
    """The advertisement to publish under, usable from `ready_us` on."""

    claim: Claim
    keys: TopicKeys
    ready_us: int


class AdvertisementNotice(NamedTuple):
    """An advertisement that the brokers of the edge node have: `from_us` is when its period begins, and from
    `prepare_us` on it and the subscriptions of its period are known along their routes."""

    topic: str
    advertised: ActiveAdvertisement
    from_us: int
    prepare_us: int


class ClaimRenewal:
    """Bounded: three claims for each topic that the member may publish on, and for each of `subscriptions_max`
    subscriptions.

    Its durable record is `WITHDRAWALS_RECORD`; `stored` is the record of an earlier run.
    """

    def __init__(
        self,
        config: BrokerClientConfig,
        periods: ValidityPeriods,
        topics: MemberTopics,
        codec: ClaimEncoder,
        edge: bytes,
        secret: Secret,
        send: Callable[[OwnedClaim | WithdrawClaim], None],
        rng: Random,
        now: int,
        stored: bytes | None = None,
    ) -> None:
        self._config, self._periods, self._topics, self._codec, self._edge = config, periods, topics, codec, edge
        self._key, self._send_to_brokers, self._rng = derive(secret, b"vc/brokers-claim"), send, rng
        self.subscriptions = Subscriptions(config.subscriptions_max)
        self._advertised: dict[str, _ClaimSeries] = {}
        self._subscribed: dict[bytes, _ClaimSeries] = {}
        self._withdrawals: dict[tuple[bytes, int], int] = {} if stored is None else _decode_withdrawals(stored)
        """How often a subscription was withdrawn in a period."""
        self._pending_withdrawals: list[WithdrawClaim] = []
        self._record: Record | None = None
        self._timers: Timers[_TimerName] = Timers()
        self._notices: list[AdvertisementNotice] = []
        self._is_connected = False
        self._start_period(now)

    def __len__(self) -> int:
        return sum(len(series.claims) for series in self._all_series())

    # --- the application

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> SharedInterest:
        """Add a subscription; `LocalError` for one that can never be claimed."""
        self._codec.encode_subscription(self._topics.keys(topic, self._periods.at(now).epoch), interest)
        subscription = self.subscriptions.add(number, topic, interest, now)
        if subscription.key not in self._subscribed:
            self._subscribed[subscription.key] = _ClaimSeries(subscription.key, topic, subscription)
            self._complete(self._subscribed[subscription.key], now)
        return subscription

    def remove(self, number: int) -> None:
        subscription = self.subscriptions.remove(number)
        if subscription in self.subscriptions:
            return
        series = self._subscribed.pop(subscription.key)
        self._timers.cancel((series.name, None))
        for period, period_claim in series.claims.items():
            self._timers.cancel((series.name, period))
            if period_claim.sent:
                position = (_series_digest(series.name), period.number)
                self._withdrawals[position] = self._withdrawals.get(position, 0) + 1
                self._pending_withdrawals.append(claims.make_withdraw(period_claim.claim.id, period_claim.holder))
        if self._pending_withdrawals:
            self._record = Record(WITHDRAWALS_RECORD, _encode_withdrawals(self._withdrawals))

    def stored(self) -> None:
        """The withdrawal counts are on disk."""
        pending, self._pending_withdrawals = self._pending_withdrawals, []
        for withdraw in pending:
            self._send_to_brokers(withdraw)

    def next_event(self) -> Event | None:
        if self.subscriptions.notices:
            return self.subscriptions.notices.pop(0)
        record, self._record = self._record, None
        return record

    # --- queries

    def set_connected(self, connected: bool, now: int) -> None:
        """Whether a majority of the edge node's replicas is connected."""
        if connected == self._is_connected:
            return
        self._is_connected = connected
        if connected:
            for series in self._all_series():
                for period, period_claim in series.claims.items():
                    self._on_known(series, period, period_claim, now)

    def active_advertisement(self, topic: str, now: int) -> ActiveAdvertisement | None:
        """The advertisement to publish under on this topic; None without a grant, or while too few brokers are
        connected."""
        series = self._advertised.get(topic)
        period_claim = None if series is None else series.claims.get(self._periods.at(now))
        return None if period_claim is None else self._advertised_by(period_claim)

    def take_notices(self) -> list[AdvertisementNotice]:
        """The advertisements that have become known since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def active_claims(self, now: int) -> list[OwnedClaim]:
        """All claims that a broker without state about this client must get."""
        active = [period_claim for series in self._all_series() for period_claim in series.claims.values()]
        return [OwnedClaim(each.claim, each.holder) for each in active if each.sent and each.claim.until_us > now]

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for name, period in self._timers.pop_due(now):
            if name is None:
                self._start_period(now)
            elif period is not None:
                self._send(self._find_series(name), period, now)
            elif (subscription := self._find_series(name).subscription) is not None:
                self.subscriptions.activate(subscription, now)

    # --- internals

    def _start_period(self, now: int) -> None:
        """A period begins: drop expired claims, and prepare the next ones."""
        period = self._periods.at(now)
        self._timers.set((None, None), period.end_us)
        self._withdrawals = {
            position: times for position, times in self._withdrawals.items() if position[1] >= period.number
        }
        for each in (period, self._periods.after(period)):
            for topic in self._published(each.epoch):
                self._advertised.setdefault(topic, _ClaimSeries(_ADVERTISEMENT_PREFIX + topic.encode(), topic))
        for series in self._all_series():
            series.claims = {of: period_claim for of, period_claim in series.claims.items() if of.expiry_us > now}
            self._complete(series, now)
        self._advertised = {topic: series for topic, series in self._advertised.items() if series.claims}

    def _complete(self, series: _ClaimSeries, now: int) -> None:
        """Claim this period at once, and schedule the next one."""
        period = self._periods.at(now)
        next_period = self._periods.after(period)
        if period not in series.claims:
            self._make_claim(series, period)
        if period in series.claims and not series.claims[period].sent:
            self._timers.cancel((series.name, period))
            self._send(series, period, now)
        if next_period not in series.claims and self._make_claim(series, next_period):
            self._timers.set((series.name, next_period), self._renewal_us(period, now))

    def _renewal_us(self, period: ValidityPeriod, now: int) -> int:
        """Time to send the claim of the next period: after the middle of this one, and at least `ahead_us` before its
        end."""
        first = max(now, (period.from_us + period.end_us) // 2)
        last = max(first, period.end_us - self._config.ahead_us)
        return first + self._rng.randrange(last - first + 1)

    def _make_claim(self, series: _ClaimSeries, period: ValidityPeriod) -> bool:
        """False if the grant does not reach that far or does not allow it."""
        holder = self._holder_key(series.name, period)
        try:
            keys = self._topics.keys(series.topic, period.epoch)
            if series.subscription is None:
                predicate, make = self._codec.encode_advertisement(keys), claims.make_advertisement
            else:
                predicate, make = (
                    self._codec.encode_subscription(keys, series.subscription.interest),
                    claims.make_subscription,
                )
            claim = make(keys, self._edge, period.epoch, period.expiry_us, predicate, holder.public)
        except LocalError:
            return False
        series.claims[period] = _PeriodClaim(claim, keys, holder)
        return True

    def _send(self, series: _ClaimSeries, period: ValidityPeriod, now: int) -> None:
        period_claim = series.claims[period]
        period_claim.sent = True
        self._send_to_brokers(OwnedClaim(period_claim.claim, period_claim.holder))
        if self._is_connected:
            self._on_known(series, period, period_claim, now)

    def _on_known(self, series: _ClaimSeries, period: ValidityPeriod, period_claim: _PeriodClaim, now: int) -> None:
        """The claim has reached the brokers, and spreads from there."""
        if period_claim.sent and period_claim.known_us is None:
            period_claim.known_us = now
            if series.subscription is None and (advertised := self._advertised_by(period_claim)) is not None:
                subscribed_us = period.from_us - self._config.ahead_us + 2 * self._config.spread_us
                notice = AdvertisementNotice(
                    series.topic, advertised, period.from_us, max(advertised.ready_us, subscribed_us)
                )
                self._notices.append(notice)
            if (
                series.subscription is not None
                and not series.subscription.is_active
                and (series.name, None) not in self._timers
            ):
                self._timers.set((series.name, None), now + self._config.spread_us)

    def _advertised_by(self, period_claim: _PeriodClaim) -> ActiveAdvertisement | None:
        if period_claim.known_us is None:
            return None
        return ActiveAdvertisement(
            period_claim.claim, period_claim.keys, period_claim.known_us + self._config.spread_us
        )

    def _holder_key(self, name: bytes, period: ValidityPeriod) -> SigningKey:
        times = self._withdrawals.get((_series_digest(name), period.number), 0)
        position = period.number.to_bytes(8, "big") + times.to_bytes(4, "big")
        return SigningKey(derive(self._key, b"vc/claim-holder", name, position))

    def _published(self, epoch: int) -> list[str]:
        try:
            return self._topics.publishable(epoch)
        except LocalError:
            return []  # The membership does not reach that far.

    def _find_series(self, name: bytes) -> _ClaimSeries:
        return (
            self._subscribed[name]
            if name in self._subscribed
            else self._advertised[name[len(_ADVERTISEMENT_PREFIX) :].decode()]
        )

    def _all_series(self) -> list[_ClaimSeries]:
        """All series, advertisements first: brokers need them to check subscriptions."""
        return [*self._advertised.values(), *self._subscribed.values()]


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
        for position, times in _decode_withdrawals(data).items():
            most[position] = max(times, most.get(position, 0))
    return _encode_withdrawals(most)


def _encode_withdrawals(withdrawals: Mapping[tuple[bytes, int], int]) -> bytes:
    return _ENCODER.encode([(*position, times) for position, times in withdrawals.items()])


def _series_digest(name: bytes) -> bytes:
    return digest(name, purpose=b"vc/claimed", size=16)


def _decode_withdrawals(stored: bytes) -> dict[tuple[bytes, int], int]:
    return {(name, period): times for name, period, times in _DECODER.decode(stored)}


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

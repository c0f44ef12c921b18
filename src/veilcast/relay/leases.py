"""Leases: how a client's subscriptions are registered at the server, from epoch to epoch.

A subscription is a series of leases, one for each epoch (in `paper` a single one for ever). The leases of this epoch
and of the next few are registered at all times. The client requests the following one at a random moment of every
epoch, so that renewals of one client are independent in time. Leases expire by themselves.

A client that was away says so for each lease (`Resume`), also for expired leases that may have deliveries waiting, and
the server sends them. The client repeats this from time to time: a delivery that was lost on the way comes again. Lease
names are the same in all runs of a client, so a restarted client needs no stored state.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

import msgspec

from veilcast.core.match_elements import ElementGroups
from veilcast.core.timers import Timers
from veilcast.crypto.group import Scalar
from veilcast.errors import FullError, LocalError
from veilcast.machine import Waiting
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.profile import ClientProfile, LeasePeriod
from veilcast.relay.proxy_connection import ProxyConnection
from veilcast.topics import Conjunction
from veilcast.wire.mesh import Message
from veilcast.wire.relay import Resume


@dataclass(slots=True, eq=False)
class LeasedInterest:
    """An interest of the client, the numbers of the subscriptions that share it, and its leases."""

    key: bytes
    topic: str
    interest: Conjunction
    numbers: dict[int, None] = field(default_factory=dict)
    leases: dict[LeasePeriod, EpochLease] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class EpochLease:
    """One lease. `request` is the number of the open request about it, if any."""

    interest: LeasedInterest
    period: LeasePeriod
    name: bytes
    was_requested: bool
    """True if the server may know the lease, from this run or an earlier one."""
    is_active: bool = False
    request: int | None = None


class SubscriptionLeases:
    """Bounded: `subscriptions_max` subscriptions, with a few leases each."""

    def __init__(
        self, config: RelayClientConfig, part: ClientProfile, way: ProxyConnection, rng: Random, now: int
    ) -> None:
        self._config, self._part, self._way, self._rng = config, part, way, rng
        self._wishes: dict[bytes, LeasedInterest] = {}
        self._numbers: dict[int, bytes] = {}
        self._under: dict[bytes, list[EpochLease]] = {}
        self._leaving: dict[tuple[bytes, LeasePeriod], None] = {}
        """Released leases that the proxy has not confirmed."""
        self._alarms: Timers[_Due] = Timers()
        self.notices: list[Waiting] = []
        if (turn_us := part.next_period_us(now)) is not None:
            self._alarms.set(_EDGE, turn_us)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lease_count(self) -> int:
        return sum(len(wish.leases) for wish in self._wishes.values())

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Add a subscription; `LocalError` for one that can never be leased."""
        if len(self._numbers) >= self._config.subscriptions_max:
            raise FullError(f"there are {self._config.subscriptions_max} subscriptions already; end one first")
        span = self._part.lease_periods(now, 0)[0]
        self._part.interest_elements(self._part.topic_keys(topic, span, now), interest)
        spelled = _ENCODER.encode((topic, interest.constraints))
        wish = self._wishes.get(spelled)
        if wish is None:
            wish = self._wishes[spelled] = LeasedInterest(spelled, topic, interest)
            for past in self._part.past_periods(now, self._config.retention_us):
                self._resume_later(self._term(wish, past, asked=True), now)
            self._complete(wish, now)
        wish.numbers[number] = None
        self._numbers[number] = spelled
        current = wish.leases.get(span)
        self.notices.append(Waiting(number, now if current is not None and current.is_active else None))

    def remove(self, number: int, now: int) -> None:
        if number not in self._numbers:
            raise LocalError(f"there is no subscription {number}")
        wish = self._wishes[self._numbers.pop(number)]
        del wish.numbers[number]
        if not wish.numbers:
            del self._wishes[wish.key]
            for term in list(wish.leases.values()):
                self._end(term, now)

    def leases_named(self, name: bytes) -> list[EpochLease]:
        """The leases that proxy and client know by this name: one, or in `paper` all."""
        return self._under.get(name, [])

    def proxy_returned(self, now: int) -> None:
        """The proxy is reachable again: ask for waiting deliveries."""
        for terms in self._under.values():
            for term in terms:
                if term.was_requested:
                    self._resume_later(term, now)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for due in self._alarms.pop_due(now):
            if due == _EDGE:
                self._turn(now)
            elif isinstance(due, EpochLease):
                self._lease(due, now)
            else:
                self._resume(due, now)

    def _turn(self, now: int) -> None:
        if (turn_us := self._part.next_period_us(now)) is not None:
            self._alarms.set(_EDGE, turn_us)
        past = self._part.past_periods(now, self._config.retention_us)
        ahead = self._part.lease_periods(now, self._config.ahead_epochs + 1)
        for wish in self._wishes.values():
            for term in list(wish.leases.values()):
                if term.period not in past and term.period not in ahead:
                    if term.request is not None:
                        self._way.cancel(term.request, now)
                    self._forget(term)
                elif term.period.until_us <= now and term.request is not None and not term.is_active:
                    # Too late to ask for the lease; but it may have stood in another life, and something may wait.
                    self._way.cancel(term.request, now)
                    term.request = None
                    self._resume_later(term, now)
            self._complete(wish, now)

    def _complete(self, wish: LeasedInterest, now: int) -> None:
        """Lease all periods for which the keyring has keys; the last one some time before the epoch boundary."""
        turn_us = self._part.next_period_us(now) or now
        for place, span in enumerate(self._part.lease_periods(now, self._config.ahead_epochs + 1)):
            if span in wish.leases:
                continue
            try:
                self._part.topic_keys(wish.topic, span, now)
            except LocalError:
                continue  # Our grant does not reach that far.
            within = self._config.spread_us if place <= self._config.ahead_epochs else turn_us - now
            self._alarms.set(self._term(wish, span, asked=False), now + self._rng.randrange(within + 1))

    def _term(self, wish: LeasedInterest, span: LeasePeriod, *, asked: bool) -> EpochLease:
        term = wish.leases[span] = EpochLease(wish, span, self._part.lease_name(wish.key, span), asked)
        self._under.setdefault(term.name, []).append(term)
        return term

    def _lease(self, term: EpochLease, now: int) -> None:
        if (term.interest.key, term.period) in self._leaving:
            # It has just been given up, and that must not arrive second.
            self._alarms.set(term, now + max(1, self._config.retry_us // 8))
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups = self._groups(term, now)
            if not term.interest.numbers:  # Given up since it was asked for first, and perhaps refused.
                return self._part.build_release(number, term.name, groups, key)
            return self._part.build_lease(number, term.name, term.period, groups, key)

        def done(now: int) -> None:
            term.is_active = True
            self._alarms.set(term.name, now + self._config.resume_us)
            if term.period == self._part.lease_periods(now, 0)[0]:
                self.notices += [Waiting(number, now) for number in term.interest.numbers]
            self._answered(term, now)

        term.was_requested = True
        term.request = self._way.request(now, build, done, proof=self._part.lease_proof(term.name))

    def _resume_later(self, term: EpochLease, now: int) -> None:
        self._alarms.set(term.name, now + self._rng.randrange(self._config.spread_us + 1))

    def _resume(self, name: bytes, now: int) -> None:
        terms = [term for term in self.leases_named(name) if term.was_requested]
        if not terms or any(term.request is not None for term in terms):
            return
        first = terms[0]

        def build(number: int, key: Scalar, now: int) -> Message:
            return Resume(number, name)

        def done(now: int) -> None:
            self._alarms.set(name, now + self._config.resume_us)
            self._answered(first, now)

        def unknown(now: int) -> None:
            self._answered(first, now)
            ahead = self._part.lease_periods(now, self._config.ahead_epochs + 1)
            for term in terms:
                if term.period not in ahead:
                    self._forget(term)
                elif term in self.leases_named(name):
                    self._lease(term, now)

        first.request = self._way.request(now, build, done, unknown)

    def _answered(self, term: EpochLease, now: int) -> None:
        term.request = None
        if not term.interest.numbers:
            self._release(term, now)

    def _end(self, term: EpochLease, now: int) -> None:
        """End a lease that no subscription uses. An open request about it finishes first: it might otherwise arrive
        after the release."""
        self._alarms.cancel(term)
        if term.request is not None and self._way.is_unsent(term.request):
            self._way.cancel(term.request, now)
            term.request = None
        if term.was_requested and term.request is None:
            self._release(term, now)
        self._forget(term)

    def _release(self, term: EpochLease, now: int) -> None:
        key = (term.interest.key, term.period)
        if term.interest.key in self._wishes or key in self._leaving:
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups: ElementGroups = ()
            with suppress(LocalError):  # The grant has ended; so will the lease.
                groups = self._groups(term, now)
            return self._part.build_release(number, term.name, groups, key)

        def gone(now: int) -> None:
            del self._leaving[key]

        self._leaving[key] = None
        self._way.request(now, build, gone, gone)

    def _groups(self, term: EpochLease, now: int) -> ElementGroups:
        return self._part.interest_elements(
            self._part.topic_keys(term.interest.topic, term.period, now), term.interest.interest
        )

    def _forget(self, term: EpochLease) -> None:
        term.interest.leases.pop(term.period, None)
        terms = self.leases_named(term.name)
        if term in terms:
            terms.remove(term)
        if not terms:
            self._under.pop(term.name, None)
            self._alarms.cancel(term.name)


_Due: TypeAlias = bytes | EpochLease
"""An epoch boundary, a lease name to ask for waiting deliveries, or a lease to request."""
_EDGE: Final = b""
_ENCODER: Final = msgspec.msgpack.Encoder()

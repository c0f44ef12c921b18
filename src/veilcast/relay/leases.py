"""Leases: how a client's subscriptions are registered at the server, from epoch to epoch.

A subscription is a series of leases, one for each epoch (in `paper` a single one for ever). The leases of this epoch
and of the next few are registered at all times. The client requests the following one at a random moment of every
epoch, so that renewals of one client are independent in time. Leases expire by themselves.

A client that was away says so for each lease (`Resume`), also for expired leases that may have deliveries waiting, and
the proxy sends them. The client repeats this from time to time: a delivery that was lost on the way comes again. Lease
names are the same in all runs of a client, so a restarted client needs no stored state.

Whoever receives these requests must not find by their times which leases belong to one client. So each lease has a
schedule of its own: the next `Resume` leaves an exponential time after the last one was due, drawn anew each time. It
depends neither on answers nor on other leases. The proxy keeps presence from the server (`presence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

import msgspec

from veilcast.core.match_elements import ElementGroups
from veilcast.core.timers import Timers, draw_exponential
from veilcast.crypto.group import Scalar
from veilcast.errors import FullError, LocalError
from veilcast.machine import Waiting
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.profile import ClientProfile, LeasePeriod
from veilcast.relay.proxy_connection import ProxyConnection
from veilcast.topics import Conjunction
from veilcast.wire.base import Message
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
        self, config: RelayClientConfig, profile: ClientProfile, connection: ProxyConnection, rng: Random, now: int
    ) -> None:
        self._config, self._profile, self._connection, self._rng = config, profile, connection, rng
        self._interests: dict[bytes, LeasedInterest] = {}
        self._numbers: dict[int, bytes] = {}
        self._by_name: dict[bytes, list[EpochLease]] = {}
        self._releasing: dict[tuple[bytes, LeasePeriod], None] = {}
        """Released leases that the proxy has not confirmed."""
        self._timers: Timers[_Due] = Timers()
        self.notices: list[Waiting] = []
        if (boundary_us := profile.next_period_us(now)) is not None:
            self._timers.set(_BOUNDARY, boundary_us)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lease_count(self) -> int:
        return sum(len(leased.leases) for leased in self._interests.values())

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        """The numbers of the subscriptions."""
        return iter(self._numbers)

    def add(self, number: int, topic: str, interest: Conjunction, now: int, *, is_first: bool = True) -> None:
        """Add a subscription; `LocalError` for one that can never be leased. Where a subscription is leased several
        times, only the first lease says that it waits, and any of them that it is ready."""
        if len(self._numbers) >= self._config.subscriptions_max:
            raise FullError(f"there are {self._config.subscriptions_max} subscriptions already; end one first")
        period = self._profile.lease_periods(now, 0)[0]
        self._profile.interest_elements(self._profile.topic_keys(topic, period, now), interest)
        key = encode_interest(topic, interest)
        leased = self._interests.get(key)
        if leased is None:
            leased = self._interests[key] = LeasedInterest(key, topic, interest)
            for past_period in self._profile.past_periods(now, self._config.retention_us):
                self._schedule_resume(self._add_lease(leased, past_period, was_requested=True), now)
            self._complete(leased, now)
        leased.numbers[number] = None
        self._numbers[number] = key
        current = leased.leases.get(period)
        is_active = current is not None and current.is_active
        if is_active or is_first:
            self.notices.append(Waiting(number, now if is_active else None))

    def remove(self, number: int, now: int) -> None:
        if number not in self._numbers:
            raise LocalError(f"there is no subscription {number}")
        leased = self._interests[self._numbers.pop(number)]
        del leased.numbers[number]
        if not leased.numbers:
            del self._interests[leased.key]
            for lease in list(leased.leases.values()):
                self._end_lease(lease, now)

    def leases_named(self, name: bytes) -> list[EpochLease]:
        """The leases that proxy and client know by this name: one, or in `paper` all."""
        return self._by_name.get(name, [])

    def proxy_returned(self, now: int) -> None:
        """The proxy is reachable again: ask for waiting deliveries."""
        for leases in self._by_name.values():
            for lease in leases:
                if lease.was_requested:
                    self._schedule_resume(lease, now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for due in self._timers.pop_due(now):
            if due == _BOUNDARY:
                self._begin_period(now)
            elif isinstance(due, EpochLease):
                self._request_lease(due, now)
            else:
                self._request_resume(due, now)

    def _begin_period(self, now: int) -> None:
        if (boundary_us := self._profile.next_period_us(now)) is not None:
            self._timers.set(_BOUNDARY, boundary_us)
        past_period = self._profile.past_periods(now, self._config.retention_us)
        ahead = self._profile.lease_periods(now, self._config.ahead_epochs + 1)
        for leased in self._interests.values():
            for lease in list(leased.leases.values()):
                if lease.period not in past_period and lease.period not in ahead:
                    if lease.request is not None:
                        self._connection.cancel(lease.request, now)
                    self._forget(lease)
                elif lease.period.until_us <= now and lease.request is not None and not lease.is_active:
                    # Too late for the lease. An earlier run may have had it, and deliveries may wait under it.
                    self._connection.cancel(lease.request, now)
                    lease.request = None
                    self._schedule_resume(lease, now)
            self._complete(leased, now)

    def _complete(self, leased: LeasedInterest, now: int) -> None:
        """Lease all periods for which the keyring has keys; the last one in the first half of the epoch."""
        boundary_us = self._profile.next_period_us(now) or now
        half_us = (boundary_us + self._profile.lease_periods(now, 0)[0].begin_us) // 2
        for index, period in enumerate(self._profile.lease_periods(now, self._config.ahead_epochs + 1)):
            if period in leased.leases:
                continue
            try:
                self._profile.topic_keys(leased.topic, period, now)
            except LocalError:
                continue  # The grant does not cover that epoch.
            within = (
                self._config.spread_us
                if index <= self._config.ahead_epochs
                else (half_us if now < half_us else boundary_us) - now
            )
            self._timers.set(
                self._add_lease(leased, period, was_requested=False), now + self._rng.randrange(within + 1)
            )

    def _add_lease(self, leased: LeasedInterest, period: LeasePeriod, *, was_requested: bool) -> EpochLease:
        lease = leased.leases[period] = EpochLease(
            leased, period, self._profile.lease_name(leased.key, period), was_requested
        )
        self._by_name.setdefault(lease.name, []).append(lease)
        return lease

    def _request_lease(self, lease: EpochLease, now: int) -> None:
        if (lease.interest.key, lease.period) in self._releasing:
            # The lease has just been released, and the release must arrive first.
            self._timers.set(lease, now + max(1, self._config.retry_us // 8))
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups = self._groups(lease, now)
            if not lease.interest.numbers:  # Withdrawn since the first request, which may have been refused.
                return self._profile.build_release(number, lease.name, groups, key)
            return self._profile.build_lease(number, lease.name, lease.period, groups, key, now)

        def on_done(now: int) -> None:
            self._activate(lease, now)
            self._finish_request(lease, now)

        def on_held(now: int) -> None:
            self._plan_resume(lease.name, now)
            self._finish_request(lease, now)

        lease.was_requested = True
        lease.request = self._connection.request(
            now,
            build,
            on_done,
            proof=self._profile.lease_proof(lease.name),
            on_held=on_held,
            period=lease.period,
        )

    def _activate(self, lease: EpochLease, now: int) -> None:
        """The server has the lease."""
        was_active, lease.is_active = lease.is_active, True
        self._plan_resume(lease.name, now)
        if not was_active and lease.period == self._profile.lease_periods(now, 0)[0]:
            self.notices += [Waiting(number, now) for number in lease.interest.numbers]

    def _plan_resume(self, name: bytes, now: int) -> None:
        """Plan the next `Resume`. A drawn one is planned when the last one is due, and an answer changes nothing."""
        if not self._config.drawn_resumes:
            self._timers.set(name, now + self._config.resume_us)
        elif name not in self._timers:
            self._timers.set(name, now + 1 + draw_exponential(self._rng, self._config.resume_us))

    def _schedule_resume(self, lease: EpochLease, now: int) -> None:
        self._timers.set(lease.name, now + self._rng.randrange(self._config.spread_us + 1))

    def _request_resume(self, name: bytes, now: int) -> None:
        leases = [lease for lease in self.leases_named(name) if lease.was_requested]
        if not leases:
            return
        if self._config.drawn_resumes:
            self._plan_resume(name, now)
        if any(lease.request is not None for lease in leases):
            return
        first = leases[0]

        def build(number: int, key: Scalar, now: int) -> Message:
            return Resume(number, name)

        def on_done(now: int) -> None:
            for lease in leases if proof is not None else []:
                self._activate(lease, now)
            on_held(now)

        def on_held(now: int) -> None:
            self._plan_resume(name, now)
            self._finish_request(first, now)

        def on_unknown(now: int) -> None:
            self._finish_request(first, now)
            ahead = self._profile.lease_periods(now, self._config.ahead_epochs + 1)
            for lease in leases:
                if lease.period not in ahead:
                    self._forget(lease)
                elif lease in self.leases_named(name):
                    self._request_lease(lease, now)

        proof = self._profile.lease_proof(name)
        first.request = self._connection.request(
            now, build, on_done, on_unknown, proof=proof, on_held=on_held, period=first.period
        )

    def _finish_request(self, lease: EpochLease, now: int) -> None:
        lease.request = None
        if not lease.interest.numbers:
            self._request_release(lease, now)

    def _end_lease(self, lease: EpochLease, now: int) -> None:
        """End a lease that no subscription uses. An open request about it finishes first: it might otherwise arrive
        after the release."""
        self._timers.cancel(lease)
        if lease.request is not None and self._connection.is_unsent(lease.request):
            self._connection.cancel(lease.request, now)
            lease.request = None
        if lease.was_requested and lease.request is None:
            self._request_release(lease, now)
        self._forget(lease)

    def _request_release(self, lease: EpochLease, now: int) -> None:
        key = (lease.interest.key, lease.period)
        if lease.interest.key in self._interests or key in self._releasing:
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups: ElementGroups = ()
            with suppress(LocalError):  # The grant has expired; so will the lease.
                groups = self._groups(lease, now)
            return self._profile.build_release(number, lease.name, groups, key)

        def on_released(now: int) -> None:
            del self._releasing[key]

        self._releasing[key] = None
        self._connection.request(now, build, on_released, on_released)

    def _groups(self, lease: EpochLease, now: int) -> ElementGroups:
        return self._profile.interest_elements(
            self._profile.topic_keys(lease.interest.topic, lease.period, now), lease.interest.interest
        )

    def _forget(self, lease: EpochLease) -> None:
        lease.interest.leases.pop(lease.period, None)
        leases = self.leases_named(lease.name)
        if lease in leases:
            leases.remove(lease)
        if not leases:
            self._by_name.pop(lease.name, None)
            self._timers.cancel(lease.name)


def encode_interest(topic: str, interest: Conjunction) -> bytes:
    """The key of an interest: two subscriptions with the same one share their leases."""
    return _ENCODER.encode((topic, interest.constraints))


_Due: TypeAlias = bytes | EpochLease
"""An epoch boundary, a lease name to ask for waiting deliveries, or a lease to request."""
_BOUNDARY: Final = b""
_ENCODER: Final = msgspec.msgpack.Encoder()

"""Leasing: how a client's subscriptions stand at the server, from epoch to epoch.

A subscription is a row of leases, one for each epoch (in `paper` a single one for ever). Those of this epoch and of the
next few stand at all times, and the one after these is asked for at a random moment of every epoch: renewals of one
client come at moments that have nothing to do with one another. What is over ends by itself.

Whoever was away says so lease by lease (`Resume`), also for those that are over but may have something waiting, and the
server sends what waits. That is said now and then in any case: should a delivery have been lost on its way, it comes
again. Names of leases are the same in all lives of a client, so a client that starts again needs to remember nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

import msgspec

from veilcast.authority.subjects import Groups
from veilcast.crypto.group import Scalar
from veilcast.errors import FullError, LocalError
from veilcast.machine import Waiting
from veilcast.parts.alarms import Alarms
from veilcast.relay.config import ClientConfig
from veilcast.relay.profile import ClientPart, Span
from veilcast.relay.way import Way
from veilcast.topics import Conjunction
from veilcast.wire.messages import Message
from veilcast.wire.relay import Resume


@dataclass(slots=True, eq=False)
class Wish:
    """What a client wants, for all its subscriptions with this interest, and the leases by which it has it."""

    spelled: bytes
    topic: str
    interest: Conjunction
    readers: dict[int, None] = field(default_factory=dict)
    terms: dict[Span, Term] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Term:
    """One lease. `request` is what is asked about it right now, if anything."""

    wish: Wish
    span: Span
    name: bytes
    asked: bool
    """Whether the server may know of it: from another life, if not from this."""
    stands: bool = False
    request: int | None = None


class Leasing:
    """Bounded: `subscriptions_max` subscriptions, and for each a few leases."""

    def __init__(self, config: ClientConfig, part: ClientPart, way: Way, rng: Random, now: int) -> None:
        self._config, self._part, self._way, self._rng = config, part, way, rng
        self._wishes: dict[bytes, Wish] = {}
        self._numbers: dict[int, bytes] = {}
        self._under: dict[bytes, list[Term]] = {}
        self._leaving: dict[tuple[bytes, Span], None] = {}
        """What was given up, until the proxy knows."""
        self._alarms: Alarms[_Due] = Alarms()
        self.news: list[Waiting] = []
        if (turn_us := part.turn_us(now)) is not None:
            self._alarms.set(_EDGE, turn_us)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def terms(self) -> int:
        return sum(len(wish.terms) for wish in self._wishes.values())

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Take up a subscription; `LocalError` for one that can never be leased."""
        if len(self._numbers) >= self._config.subscriptions_max:
            raise FullError(f"there are {self._config.subscriptions_max} subscriptions already; end one first")
        span = self._part.spans(now, 0)[0]
        self._part.wanted(self._part.keys(topic, span, now), interest)
        spelled = _ENCODER.encode((topic, interest.constraints))
        wish = self._wishes.get(spelled)
        if wish is None:
            wish = self._wishes[spelled] = Wish(spelled, topic, interest)
            for past in self._part.past(now, self._config.retention_us):
                self._resume_later(self._term(wish, past, asked=True), now)
            self._complete(wish, now)
        wish.readers[number] = None
        self._numbers[number] = spelled
        current = wish.terms.get(span)
        self.news.append(Waiting(number, now if current is not None and current.stands else None))

    def remove(self, number: int, now: int) -> None:
        if number not in self._numbers:
            raise LocalError(f"there is no subscription {number}")
        wish = self._wishes[self._numbers.pop(number)]
        del wish.readers[number]
        if not wish.readers:
            del self._wishes[wish.spelled]
            for term in list(wish.terms.values()):
                self._end(term, now)

    def under(self, name: bytes) -> list[Term]:
        """The leases that proxy and client know by this name: one, or in `paper` all."""
        return self._under.get(name, [])

    def returned(self, now: int) -> None:
        """The proxy hears us again: ask for what waits."""
        for terms in self._under.values():
            for term in terms:
                if term.asked:
                    self._resume_later(term, now)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for due in self._alarms.due(now):
            if due == _EDGE:
                self._turn(now)
            elif isinstance(due, Term):
                self._lease(due, now)
            else:
                self._resume(due, now)

    def _turn(self, now: int) -> None:
        if (turn_us := self._part.turn_us(now)) is not None:
            self._alarms.set(_EDGE, turn_us)
        past = self._part.past(now, self._config.retention_us)
        ahead = self._part.spans(now, self._config.ahead_epochs + 1)
        for wish in self._wishes.values():
            for term in list(wish.terms.values()):
                if term.span not in past and term.span not in ahead:
                    if term.request is not None:
                        self._way.cancel(term.request, now)
                    self._forget(term)
                elif term.span.until_us <= now and term.request is not None and not term.stands:
                    # Too late to ask for the lease; but it may have stood in another life, and something may wait.
                    self._way.cancel(term.request, now)
                    term.request = None
                    self._resume_later(term, now)
            self._complete(wish, now)

    def _complete(self, wish: Wish, now: int) -> None:
        """See to it that all spans that we hold keys of are leased, the last of them some time before the edge."""
        turn_us = self._part.turn_us(now) or now
        for place, span in enumerate(self._part.spans(now, self._config.ahead_epochs + 1)):
            if span in wish.terms:
                continue
            try:
                self._part.keys(wish.topic, span, now)
            except LocalError:
                continue  # Our grant does not reach that far.
            within = self._config.spread_us if place <= self._config.ahead_epochs else turn_us - now
            self._alarms.set(self._term(wish, span, asked=False), now + self._rng.randrange(within + 1))

    def _term(self, wish: Wish, span: Span, *, asked: bool) -> Term:
        term = wish.terms[span] = Term(wish, span, self._part.name(wish.spelled, span), asked)
        self._under.setdefault(term.name, []).append(term)
        return term

    def _lease(self, term: Term, now: int) -> None:
        if (term.wish.spelled, term.span) in self._leaving:
            # It has just been given up, and that must not arrive second.
            self._alarms.set(term, now + max(1, self._config.retry_us // 8))
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups = self._groups(term, now)
            if not term.wish.readers:  # Given up since it was asked for first, and perhaps refused.
                return self._part.release(number, term.name, groups, key)
            return self._part.lease(number, term.name, term.span, groups, key)

        def done(now: int) -> None:
            term.stands = True
            self._alarms.set(term.name, now + self._config.resume_us)
            if term.span == self._part.spans(now, 0)[0]:
                self.news += [Waiting(number, now) for number in term.wish.readers]
            self._answered(term, now)

        term.asked = True
        term.request = self._way.ask(now, build, done, proof=self._part.lease_proof(term.name))

    def _resume_later(self, term: Term, now: int) -> None:
        self._alarms.set(term.name, now + self._rng.randrange(self._config.spread_us + 1))

    def _resume(self, name: bytes, now: int) -> None:
        terms = [term for term in self.under(name) if term.asked]
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
            ahead = self._part.spans(now, self._config.ahead_epochs + 1)
            for term in terms:
                if term.span not in ahead:
                    self._forget(term)
                elif term in self.under(name):
                    self._lease(term, now)

        first.request = self._way.ask(now, build, done, unknown)

    def _answered(self, term: Term, now: int) -> None:
        term.request = None
        if not term.wish.readers:
            self._release(term, now)

    def _end(self, term: Term, now: int) -> None:
        """Nobody wants it any more. What is under way about it is let finish first, for it might arrive second."""
        self._alarms.drop(term)
        if term.request is not None and self._way.is_unsent(term.request):
            self._way.cancel(term.request, now)
            term.request = None
        if term.asked and term.request is None:
            self._release(term, now)
        self._forget(term)

    def _release(self, term: Term, now: int) -> None:
        key = (term.wish.spelled, term.span)
        if term.wish.spelled in self._wishes or key in self._leaving:
            return

        def build(number: int, key: Scalar, now: int) -> Message:
            groups: Groups = ()
            with suppress(LocalError):  # The grant has ended; so will the lease.
                groups = self._groups(term, now)
            return self._part.release(number, term.name, groups, key)

        def gone(now: int) -> None:
            del self._leaving[key]

        self._leaving[key] = None
        self._way.ask(now, build, gone, gone)

    def _groups(self, term: Term, now: int) -> Groups:
        return self._part.wanted(self._part.keys(term.wish.topic, term.span, now), term.wish.interest)

    def _forget(self, term: Term) -> None:
        term.wish.terms.pop(term.span, None)
        terms = self.under(term.name)
        if term in terms:
            terms.remove(term)
        if not terms:
            self._under.pop(term.name, None)
            self._alarms.drop(term.name)


_Due: TypeAlias = bytes | Term
"""The edge of an epoch, a name to ask for what waits under it, or a lease to ask for."""
_EDGE: Final = b""
_ENCODER: Final = msgspec.msgpack.Encoder()

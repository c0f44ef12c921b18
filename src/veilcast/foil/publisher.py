"""The publisher: turns a publication into candidates at the broker once it is durable, and repeats it for subscribers
that missed it.

An event is made once and always leaves in the same form: all its candidates, one after the other in the order of their
slots. It is settled when the broker has acknowledged every one of them. If an event's session has ended before it could
leave, because the broker was away for so long, it is rebuilt for the current session: under another name, stream and
order, but with the same candidates. Otherwise the truth would be the intersection of both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.core.sealed_notification import encode_notification
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.foil.config import FoilConfig
from veilcast.foil.event import STREAM_BYTES, CandidateHead, seal_body, seal_fake_body
from veilcast.foil.foiler import DrawnCandidates, Foiler
from veilcast.foil.positions import PositionChain, chain_number, true_slot
from veilcast.foil.publisher_store import NO_PERIOD, PublisherStore, StoredEvent
from veilcast.foil.repeats import RepeatPace, RepeatRounds, open_repeat_request, seal_presence
from veilcast.foil.session_periods import SessionPeriod, SessionPeriods
from veilcast.foil.topic_names import EventCell
from veilcast.machine import Delay, Entropy, Event, Overdue, Publication
from veilcast.topics import Schema, check_complete, check_publication, topics_of

EventKey: TypeAlias = tuple[int, int]
"""An event: its record, and its place in the record."""

FindChain: TypeAlias = Callable[[TopicKeys, bytes, int], PositionChain]
"""The chain of this number in a stream of this publisher, on the topic of these keys."""


class FoilPublisher:
    """Bounded by the stored events, and by the grants of its owner. `begun` is called with every new stream."""

    def __init__(
        self,
        config: FoilConfig,
        spans: SessionPeriods,
        keeping: PublisherStore,
        seeds: FindChain,
        begun: Callable[[SessionPeriod, bytes, str, int], None],
        rng: Random,
        entropy: Entropy,
    ) -> None:
        self._config, self._spans, self._keeping, self._seeds, self._begun = config, spans, keeping, seeds, begun
        self._rng, self._entropy = rng, entropy
        self._life = entropy(8)
        self._numbers: dict[str, int] = {}
        self._foilers: dict[str, Foiler] = {}
        self._streams: dict[tuple[int, str], _Stream] = {}
        self._sending: dict[EventKey, _Sending] = {}
        self._backlog: dict[int, deque[EventKey]] = {}
        self._first: dict[int, dict[int, None]] = {}
        """The events of each publication that the broker has not acknowledged yet."""
        self._repeats: dict[int, RepeatRounds] = {}
        self._serving: Timers[int] = Timers()
        self._served_us: dict[int, int] = {}
        self._pace = RepeatPace(config.again_us, config.kept_max)
        self._later: Timers[EventKey] = Timers()
        """Events to be repeated that were repeated recently."""
        self._greeting: dict[tuple[int, str], None] = {}
        self._overdue: Timers[int] = Timers()
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        return len(self._sending)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Accept it for every topic that labels it, or for none."""
        self._keeping.check_capacity()
        span = self._spans.current(now)
        keys_of = {topic: span.keys(topic) for topic in topics_of(publication)}
        schemas = {topic: keys.record.schema for topic, keys in keys_of.items()}
        check_publication(publication, schemas)
        check_complete(publication, schemas)
        made: list[tuple[Foiler, DrawnCandidates, StoredEvent]] = []
        for topic, keys in keys_of.items():
            foiler = self._foiler(topic, keys.record.schema)
            told = foiler.foiled_attributes & {attribute for attribute, _ in publication.pairs}
            if any(told & other.foiled_attributes for other, _, _ in made):
                raise LocalError("a foiled value goes out on one topic: of two sets of fakes the truth is in both")
            drawn = foiler.draw(publication)
            letter = PendingPublication(
                topic, NumberedPublication(self._life, self._numbers.get(topic, 0) + 1, publication)
            )
            item = self._make(span, keys, letter, drawn.places[0], drawn.places[1:], foiler.pack_state(drawn), now)
            made.append((foiler, drawn, item))
        for foiler, drawn, item in made:
            foiler.commit(drawn)
            self._numbers[item.pending.topic] = item.pending.content.number
        items = tuple(item for _, _, item in made)
        events, record = self._keeping.store(items, now, lambda now: self._leave(events, now))
        return record

    def withdraw(self, record: int, now: int) -> None:
        events = self._keeping.events_of(record)
        if events is not None:
            self._first.pop(events, None)
            self._overdue.cancel(events)
            for key in [key for key, sending in self._sending.items() if key[0] == events and not sending.left]:
                del self._sending[key]
            self._keeping.withdraw(events, now)

    def delay(self, now: int) -> Delay | None:
        """Why the broker has not acknowledged all durable publications; None if it has."""
        if not self._first:
            return None
        items = self._keeping.items(next(reversed(self._first)))
        spans = [span for item in items if (span := self._spans.get(item.period)) is not None]
        if len(spans) < len(items):
            return Delay("no grant of the keyring allows to publish on its topic now")
        if not all(span.session.ready for span in spans):
            return Delay("the broker does not answer")
        waiting = sum(len(backlog) for backlog in self._backlog.values())
        return Delay("the broker is to acknowledge it", now + (1 + waiting // self._config.window) * _ANSWER_US)

    # --- sessions

    def resume(self, now: int) -> None:
        """After a restart: send unacknowledged publications of an earlier run again."""
        for events in self._keeping.unsettled():
            self._leave(events, now)

    def period_opened(self, span: SessionPeriod, now: int) -> None:
        """A session period has opened: listen for repeat requests."""
        self._repeats[span.number] = RepeatRounds(self._config.requests_max, self._config.settle_us)
        span.session.subscribe([span.names(topic).repeat_topic for topic in span.published], now)
        for stream, (topic, number) in self._keeping.streams().items():
            if number == span.number and topic in span.published:
                self._begun(span, stream, topic, now)
        # What found its session over, and no grant for another, may have one now.
        for events in list(self._first):
            for place, item in enumerate(self._keeping.items(events)):
                if (events, place) not in self._sending and self._spans.get(item.period) is None:
                    self._send((events, place), now)

    def session_ready(self, span: SessionPeriod, now: int) -> None:
        for topic in span.published:
            if (span.number, topic) not in self._greeting:
                self._greet(span, topic, now)
        self._pump(span, now)

    def session_lost(self, span: SessionPeriod, now: int) -> None:
        self._repeats[span.number].lost(span.session.confirmed_us)

    def period_ended(self, number: int, now: int) -> None:
        """A session period has ended: unacknowledged events go through another."""
        self._repeats.pop(number, None)
        self._backlog.pop(number, None)
        self._serving.cancel(number)
        self._served_us.pop(number, None)
        self._greeting = {key: None for key in self._greeting if key[0] != number}
        self._streams = {key: stream for key, stream in self._streams.items() if key[0] != number}
        for key in [key for key, sending in self._sending.items() if sending.span == number]:
            del self._sending[key]
            if self._keeping.record_of(key[0]) is not None:
                self._send(key, now)

    def handle_repeat_request(self, span: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """A subscriber may have missed something; raises `RemoteError` for an invalid request."""
        absences, repeats = open_repeat_request(span.keys(topic), payload), self._repeats[span.number]
        repeats.ask(topic, absences)
        if repeats.has_requests and span.number not in self._serving:
            soonest = self._served_us.get(span.number, now) + self._config.again_us
            self._serving.set(span.number, max(now, soonest) if span.number in self._served_us else now)

    # --- time

    def handle(self, now: int) -> None:
        for number in self._serving.pop_due(now):
            if (span := self._spans.get(number)) is not None:
                self._serve(span, now)
        for key in self._later.pop_due(now):
            if (items := self._keeping.items(key[0])) and self._spans.get(items[key[1]].period) is not None:
                self._repeat(key, now)
        for events in self._overdue.pop_due(now):
            record = self._keeping.record_of(events)
            if record is not None:
                self._overdue.set(events, now + self._config.wait_us)
                self._events.append(Overdue(record, self._keeping.items(events)[0].pending.content.publication))
        self._keeping.expire(now - max(self._config.keep_us, self._config.margin_us + self._config.late_us))

    def next_us(self) -> int | None:
        return earliest(self._serving.next_us(), self._later.next_us(), self._overdue.next_us())

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._keeping.next_event()

    @property
    def request_count(self) -> int:
        return sum(map(len, self._repeats.values()))

    # --- inside

    def _foiler(self, topic: str, schema: Schema) -> Foiler:
        if topic not in self._foilers:
            self._foilers[topic] = Foiler(self._config, schema, self._entropy, self._keeping.generator_state(topic))
        return self._foilers[topic]

    def _make(
        self,
        span: SessionPeriod,
        keys: TopicKeys,
        letter: PendingPublication,
        truth: EventCell,
        fakes: tuple[EventCell, ...],
        state: bytes,
        now: int,
    ) -> StoredEvent:
        note = encode_notification(keys, letter.content, self._entropy)
        stream = self._stream(span, letter.topic, now)
        number = stream.next
        if stream.chain is None or not stream.chain.covers(number):
            stream.chain = self._seeds(keys, stream.name, chain_number(number))
        secret = stream.chain.at(number)
        places, slot = list(fakes), true_slot(secret, len(fakes) + 1)
        self._rng.shuffle(places)
        places.insert(slot, truth)
        head = CandidateHead(stream.name, number, len(places), slot)
        sealed = seal_body(head, secret, note, self._entropy)
        stream.next += 1
        chaff = self._entropy(FAKE_KEY_BYTES)
        return StoredEvent(letter, now, tuple(places), slot, span.number, stream.name, number, chaff, sealed, state)

    def _stream(self, span: SessionPeriod, topic: str, now: int) -> _Stream:
        stream = self._streams.get((span.number, topic))
        if stream is None:
            stream = self._streams[span.number, topic] = _Stream(self._entropy(STREAM_BYTES))
            self._begun(span, stream.name, topic, now)
        return stream

    def _leave(self, events: int, now: int) -> None:
        """The publication is durable."""
        items = self._keeping.items(events)
        self._first[events] = dict.fromkeys(range(len(items)))
        self._overdue.set(events, now + self._config.wait_us)
        for place in range(len(items)):
            self._send((events, place), now)

    def _send(self, key: EventKey, now: int) -> None:
        sending = self._sending.get(key)
        if sending is not None:
            sending.again = True
            return
        events, place = key
        items = self._keeping.items(events)
        if not items or items[place].period == NO_PERIOD:
            return
        item = items[place]
        span = self._spans.get(item.period)
        if span is None:
            self._remake(key, now)
            return
        self._sending[key] = _Sending(item.period)
        self._backlog.setdefault(item.period, deque()).append(key)
        self._pump(span, now)

    def _pump(self, span: SessionPeriod, now: int) -> None:
        """Give the session as much as it can send at once: waiting events are not encoded before their time."""
        backlog = self._backlog.get(span.number)
        while backlog and span.session.ready and len(span.session) < self._config.window:
            key = backlog.popleft()
            sending = self._sending.get(key)
            items = self._keeping.items(key[0])
            if sending is None or not items:
                self._sending.pop(key, None)
                continue
            self._put(span, key, sending, items[key[1]], now)

    def _put(self, span: SessionPeriod, key: EventKey, sending: _Sending, item: StoredEvent, now: int) -> None:
        names = span.names(item.pending.topic)
        sending.left, sending.again = len(item.places), False

        def done(now: int) -> None:
            sending.left -= 1
            if not sending.left:
                self._through(span, key, sending, now)

        for slot, place in enumerate(item.places):
            head = CandidateHead(item.stream, item.number, len(item.places), slot)
            true = slot == item.slot
            body = item.sealed if true else seal_fake_body(head, Secret(item.fake_key), len(item.sealed))
            span.session.publish(names.topic(place), head.encode() + body, done, now)

    def _through(self, span: SessionPeriod, key: EventKey, sending: _Sending, now: int) -> None:
        if self._sending.get(key) is not sending:
            return
        del self._sending[key]
        if span.number in self._repeats and not sending.again:
            self._repeats[span.number].acknowledged(key, span.session.confirmed_us, now)
        first = self._first.get(key[0], {})
        first.pop(key[1], None)
        if not first and self._first.pop(key[0], None) is not None:
            self._overdue.cancel(key[0])
            self._keeping.settle_publication(key[0], now)
        if sending.again:
            self._send(key, now)
        self._pump(span, now)

    def _remake(self, key: EventKey, now: int) -> None:
        events, place = key
        items = self._keeping.items(events)
        old = items[place]
        fakes = old.places[: old.slot] + old.places[old.slot + 1 :]
        try:
            span = self._spans.current(now)
            keys = span.keys(old.pending.topic)
            item = self._make(span, keys, old.pending, old.places[old.slot], fakes, old.state, now)
        except LocalError:
            return  # Our grant has ended; the owner hears that it is overdue, for as long as it likes.
        renewed = (*items[:place], item, *items[place + 1 :])
        self._keeping.replace(events, renewed, now, lambda now: self._send(key, now))

    def _serve(self, span: SessionPeriod, now: int) -> None:
        repeats, margin_us, late_us = self._repeats[span.number], self._config.margin_us, self._config.late_us
        if any(sending.repeats and sending.span == span.number for sending in self._sending.values()):
            self._serving.set(span.number, now + self._config.again_us)
            return
        self._served_us[span.number] = now
        asked = repeats.take_requests()
        keys: dict[EventKey, None] = {}
        for topic, each in asked:
            since_us, until_us = each.since_us - margin_us - late_us, each.until_us + margin_us
            found = self._keeping.find_events(topic, span.number, since_us, until_us)
            keys.update((key, None) for key in found if self._has_left(key[0]))
        repeats.begin_round(asked, keys)
        for key in keys:
            self._repeat(key, now)

    def _repeat(self, key: EventKey, now: int) -> None:
        if key in self._later:
            return
        wait_us = self._pace.wait_us(key, now)
        if wait_us:
            self._later.set(key, now + wait_us)
            return
        self._send(key, now)
        if key in self._sending:
            self._sending[key].repeats = True

    def _has_left(self, events: int) -> bool:
        """True if the publication is durable; otherwise it will leave when it is."""
        return events in self._first or self._keeping.record_of(events) is None

    def _greet(self, span: SessionPeriod, topic: str, now: int) -> None:
        """Announce this publisher; not while an earlier announcement is in flight, which arrives as late."""
        self._greeting[span.number, topic] = None
        payload = seal_presence(span.keys(topic), self._entropy)
        span.session.publish(span.names(topic).presence_topic, payload, lambda _: self._greeted(span, topic), now)

    def _greeted(self, span: SessionPeriod, topic: str) -> None:
        self._greeting.pop((span.number, topic), None)


@dataclass(slots=True)
class _Stream:
    name: bytes
    next: int = 0
    chain: PositionChain | None = None
    """Chain of the last event; continued, not recomputed from its beginning each time."""


@dataclass(slots=True)
class _Sending:
    """An event in flight or waiting; `again` if it must leave once more after that."""

    span: int
    left: int = 0
    """Candidates that the session has and the broker has not acknowledged; 0 while the event waits."""
    again: bool = False
    repeats: bool = False
    """True if a subscriber asked for it."""


_ANSWER_US: Final = 1_000_000
"""Assumed time of a broker to acknowledge one window of messages."""
FAKE_KEY_BYTES: Final = 32
"""Size of the key from which an event's fakes are made."""

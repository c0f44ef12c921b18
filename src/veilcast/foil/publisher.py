"""The publisher: sends durable publications as candidates, and repeats them for subscribers that missed them.

A publication leaves once it is on the disk. An event is made once and always leaves in the same form: all its
candidates, one after the other in the order of their slots. It is settled when the broker has acknowledged every one of
them. If an event's session has ended before it could leave, because the broker was away for so long, it is rebuilt for
the current session: under another name, stream and order, but with the same candidates. Otherwise the truth would be
the intersection of both.
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
    """Bounded by the stored events, and by the grants of its owner. `on_new_stream` is called with every new stream."""

    def __init__(
        self,
        config: FoilConfig,
        periods: SessionPeriods,
        store: PublisherStore,
        find_chain: FindChain,
        on_new_stream: Callable[[SessionPeriod, bytes, str, int], None],
        rng: Random,
        entropy: Entropy,
    ) -> None:
        self._config, self._periods, self._store, self._find_chain, self._on_new_stream = (
            config,
            periods,
            store,
            find_chain,
            on_new_stream,
        )
        self._rng, self._entropy = rng, entropy
        self._stream_id = entropy(8)
        self._numbers: dict[str, int] = {}
        self._foilers: dict[str, Foiler] = {}
        self._streams: dict[tuple[int, str], _Stream] = {}
        self._sending: dict[EventKey, _Sending] = {}
        self._backlog: dict[int, deque[EventKey]] = {}
        self._unacknowledged: dict[int, dict[int, None]] = {}
        """The events of each publication that the broker has not acknowledged yet."""
        self._repeats: dict[int, RepeatRounds] = {}
        self._round_timers: Timers[int] = Timers()
        self._last_round_us: dict[int, int] = {}
        self._repeat_pace = RepeatPace(config.again_us, config.kept_max)
        self._repeat_timers: Timers[EventKey] = Timers()
        """Events to be repeated that were repeated recently."""
        self._announcing: dict[tuple[int, str], None] = {}
        self._overdue: Timers[int] = Timers()
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        return len(self._sending)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Accept it for every topic that labels it, or for none."""
        self._store.check_capacity()
        period = self._periods.current(now)
        keys_of = {topic: period.keys(topic) for topic in topics_of(publication)}
        schemas = {topic: keys.record.schema for topic, keys in keys_of.items()}
        check_publication(publication, schemas)
        check_complete(publication, schemas)
        made: list[tuple[Foiler, DrawnCandidates, StoredEvent]] = []
        for topic, keys in keys_of.items():
            foiler = self._foiler(topic, keys.record.schema)
            foiled = foiler.foiled_attributes & {attribute for attribute, _ in publication.pairs}
            if any(foiled & other.foiled_attributes for other, _, _ in made):
                raise LocalError(
                    "a foiled value can go out on one topic only: the truth would be in both sets of fakes"
                )
            drawn = foiler.draw(publication)
            pending = PendingPublication(
                topic, NumberedPublication(self._stream_id, self._numbers.get(topic, 0) + 1, publication)
            )
            item = self._make_event(
                period, keys, pending, drawn.places[0], drawn.places[1:], foiler.pack_state(drawn), now
            )
            made.append((foiler, drawn, item))
        for foiler, drawn, item in made:
            foiler.commit(drawn)
            self._numbers[item.pending.topic] = item.pending.content.number
        items = tuple(item for _, _, item in made)
        events, record = self._store.store(items, now, lambda now: self._send_all(events, now))
        return record

    def withdraw(self, record: int, now: int) -> None:
        events = self._store.events_of(record)
        if events is not None:
            self._unacknowledged.pop(events, None)
            self._overdue.cancel(events)
            for key in [
                key for key, sending in self._sending.items() if key[0] == events and not sending.unacknowledged
            ]:
                del self._sending[key]
            self._store.withdraw(events, now)

    def delay(self, now: int) -> Delay | None:
        """Why the broker has not acknowledged all durable publications; None if it has."""
        if not self._unacknowledged:
            return None
        items = self._store.items(next(reversed(self._unacknowledged)))
        periods = [period for item in items if (period := self._periods.get(item.period)) is not None]
        if len(periods) < len(items):
            return Delay("no grant of the keyring allows to publish on its topic now")
        if not all(period.session.ready for period in periods):
            return Delay("the broker does not answer")
        waiting = sum(len(backlog) for backlog in self._backlog.values())
        return Delay("the broker is to acknowledge it", now + (1 + waiting // self._config.window) * _ANSWER_US)

    # --- sessions

    def resume(self, now: int) -> None:
        """After a restart: send unacknowledged publications of an earlier run again."""
        for events in self._store.unsettled():
            self._send_all(events, now)

    def period_opened(self, period: SessionPeriod, now: int) -> None:
        """A session period has opened: listen for repeat requests."""
        self._repeats[period.number] = RepeatRounds(self._config.requests_max, self._config.settle_us)
        period.session.subscribe([period.names(topic).repeat_topic for topic in period.published], now)
        for stream, (topic, number) in self._store.streams().items():
            if number == period.number and topic in period.published:
                self._on_new_stream(period, stream, topic, now)
        # Events whose session had ended, without a grant for another, may have a session now.
        for events in list(self._unacknowledged):
            for place, item in enumerate(self._store.items(events)):
                if (events, place) not in self._sending and self._periods.get(item.period) is None:
                    self._send((events, place), now)

    def session_ready(self, period: SessionPeriod, now: int) -> None:
        for topic in period.published:
            if (period.number, topic) not in self._announcing:
                self._announce(period, topic, now)
        self._pump(period, now)

    def session_lost(self, period: SessionPeriod, now: int) -> None:
        self._repeats[period.number].lost(period.session.confirmed_us)
        self._round_timers.cancel(period.number)

    def period_ended(self, number: int, now: int) -> None:
        """A session period has ended: unacknowledged events go through another."""
        self._repeats.pop(number, None)
        self._backlog.pop(number, None)
        self._round_timers.cancel(number)
        self._last_round_us.pop(number, None)
        self._announcing = {key: None for key in self._announcing if key[0] != number}
        self._streams = {key: stream for key, stream in self._streams.items() if key[0] != number}
        for key in [key for key, sending in self._sending.items() if sending.period == number]:
            del self._sending[key]
            if self._store.record_of(key[0]) is not None:
                self._send(key, now)

    def handle_repeat_request(self, period: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """A subscriber may have missed something; raises `RemoteError` for an invalid request."""
        absences, rounds = open_repeat_request(period.keys(topic), payload), self._repeats[period.number]
        rounds.ask(topic, absences)
        if rounds.has_requests and period.number not in self._round_timers:
            soonest = self._last_round_us.get(period.number, now) + self._config.again_us
            self._round_timers.set(period.number, max(now, soonest) if period.number in self._last_round_us else now)

    # --- time

    def handle(self, now: int) -> None:
        for number in self._round_timers.pop_due(now):
            if (period := self._periods.get(number)) is not None:
                self._begin_round(period, now)
        for key in self._repeat_timers.pop_due(now):
            if (items := self._store.items(key[0])) and self._periods.get(items[key[1]].period) is not None:
                self._repeat(key, now)
        for events in self._overdue.pop_due(now):
            record = self._store.record_of(events)
            if record is not None:
                self._overdue.set(events, now + self._config.wait_us)
                self._events.append(Overdue(record, self._store.items(events)[0].pending.content.publication))
        self._store.expire(now - max(self._config.keep_us, self._config.margin_us + self._config.late_us))

    def next_us(self) -> int | None:
        return earliest(self._round_timers.next_us(), self._repeat_timers.next_us(), self._overdue.next_us())

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._store.next_event()

    @property
    def request_count(self) -> int:
        return sum(map(len, self._repeats.values()))

    # --- inside

    def _foiler(self, topic: str, schema: Schema) -> Foiler:
        if topic not in self._foilers:
            self._foilers[topic] = Foiler(self._config, schema, self._entropy, self._store.generator_state(topic))
        return self._foilers[topic]

    def _make_event(
        self,
        period: SessionPeriod,
        keys: TopicKeys,
        pending: PendingPublication,
        true_cell: EventCell,
        fake_cells: tuple[EventCell, ...],
        state: bytes,
        now: int,
    ) -> StoredEvent:
        note = encode_notification(keys, pending.content, self._entropy)
        stream = self._stream(period, pending.topic, now)
        number = stream.next
        if stream.chain is None or not stream.chain.covers(number):
            stream.chain = self._find_chain(keys, stream.name, chain_number(number))
        secret = stream.chain.at(number)
        places, slot = list(fake_cells), true_slot(secret, len(fake_cells) + 1)
        self._rng.shuffle(places)
        places.insert(slot, true_cell)
        head = CandidateHead(stream.name, number, len(places), slot)
        sealed = seal_body(head, secret, note, self._entropy)
        stream.next += 1
        chaff = self._entropy(FAKE_KEY_BYTES)
        return StoredEvent(pending, now, tuple(places), slot, period.number, stream.name, number, chaff, sealed, state)

    def _stream(self, period: SessionPeriod, topic: str, now: int) -> _Stream:
        stream = self._streams.get((period.number, topic))
        if stream is None:
            stream = self._streams[period.number, topic] = _Stream(self._entropy(STREAM_BYTES))
            self._on_new_stream(period, stream.name, topic, now)
        return stream

    def _send_all(self, events: int, now: int) -> None:
        """The publication is durable."""
        items = self._store.items(events)
        self._unacknowledged[events] = dict.fromkeys(range(len(items)))
        self._overdue.set(events, now + self._config.wait_us)
        for place in range(len(items)):
            self._send((events, place), now)

    def _send(self, key: EventKey, now: int) -> None:
        sending = self._sending.get(key)
        if sending is not None:
            sending.resend = True
            return
        events, place = key
        items = self._store.items(events)
        if not items or items[place].period == NO_PERIOD:
            return
        item = items[place]
        period = self._periods.get(item.period)
        if period is None:
            self._rebuild(key, now)
            return
        self._sending[key] = _Sending(item.period)
        self._backlog.setdefault(item.period, deque()).append(key)
        self._pump(period, now)

    def _pump(self, period: SessionPeriod, now: int) -> None:
        """Give the session as much as it can send at once: waiting events are not encoded before their time."""
        backlog = self._backlog.get(period.number)
        while backlog and period.session.ready and len(period.session) < self._config.window:
            key = backlog.popleft()
            sending = self._sending.get(key)
            items = self._store.items(key[0])
            if sending is None or not items:
                self._sending.pop(key, None)
                continue
            self._send_candidates(period, key, sending, items[key[1]], now)

    def _send_candidates(
        self, period: SessionPeriod, key: EventKey, sending: _Sending, item: StoredEvent, now: int
    ) -> None:
        names = period.names(item.pending.topic)
        sending.unacknowledged, sending.resend = len(item.places), False

        def on_acknowledged(now: int) -> None:
            sending.unacknowledged -= 1
            if not sending.unacknowledged:
                self._finish(period, key, sending, now)

        for slot, place in enumerate(item.places):
            head = CandidateHead(item.stream, item.number, len(item.places), slot)
            true = slot == item.slot
            body = item.sealed if true else seal_fake_body(head, Secret(item.fake_key), len(item.sealed))
            period.session.publish(names.topic(place), head.encode() + body, on_acknowledged, now)

    def _finish(self, period: SessionPeriod, key: EventKey, sending: _Sending, now: int) -> None:
        if self._sending.get(key) is not sending:
            return
        del self._sending[key]
        if period.number in self._repeats and not sending.resend:
            self._repeats[period.number].acknowledged(key, period.session.confirmed_us, now)
        waiting_places = self._unacknowledged.get(key[0], {})
        waiting_places.pop(key[1], None)
        if not waiting_places and self._unacknowledged.pop(key[0], None) is not None:
            self._overdue.cancel(key[0])
            self._store.settle_publication(key[0], now)
        if sending.resend:
            self._send(key, now)
        self._pump(period, now)

    def _rebuild(self, key: EventKey, now: int) -> None:
        events, place = key
        items = self._store.items(events)
        old = items[place]
        fake_cells = old.places[: old.slot] + old.places[old.slot + 1 :]
        try:
            period = self._periods.current(now)
            keys = period.keys(old.pending.topic)
            item = self._make_event(period, keys, old.pending, old.places[old.slot], fake_cells, old.state, now)
        except LocalError:
            return  # The grant has expired; the publication stays overdue until its owner withdraws it.
        renewed = (*items[:place], item, *items[place + 1 :])
        self._store.replace(events, renewed, now, lambda now: self._send(key, now))

    def _begin_round(self, period: SessionPeriod, now: int) -> None:
        rounds, margin_us, late_us = self._repeats[period.number], self._config.margin_us, self._config.late_us
        if any(sending.rounds and sending.period == period.number for sending in self._sending.values()):
            self._round_timers.set(period.number, now + self._config.again_us)
            return
        self._last_round_us[period.number] = now
        requests = rounds.take_requests()
        keys: dict[EventKey, None] = {}
        for topic, each in requests:
            since_us, until_us = each.since_us - margin_us - late_us, each.until_us + margin_us
            found = self._store.find_events(topic, period.number, since_us, until_us)
            keys.update((key, None) for key in found if self._has_left(key[0]))
        rounds.begin_round(requests, keys)
        for key in keys:
            self._repeat(key, now)

    def _repeat(self, key: EventKey, now: int) -> None:
        if key in self._repeat_timers:
            return
        wait_us = self._repeat_pace.wait_us(key, now)
        if wait_us:
            self._repeat_timers.set(key, now + wait_us)
            return
        self._send(key, now)
        if key in self._sending:
            self._sending[key].rounds = True

    def _has_left(self, events: int) -> bool:
        """True if the publication is durable; otherwise it will leave when it is."""
        return events in self._unacknowledged or self._store.record_of(events) is None

    def _announce(self, period: SessionPeriod, topic: str, now: int) -> None:
        """Announce this publisher; not while an earlier announcement is in flight, which arrives as late."""
        self._announcing[period.number, topic] = None
        payload = seal_presence(period.keys(topic), self._entropy)
        period.session.publish(
            period.names(topic).presence_topic, payload, lambda _: self._announced(period, topic), now
        )

    def _announced(self, period: SessionPeriod, topic: str) -> None:
        self._announcing.pop((period.number, topic), None)


@dataclass(slots=True)
class _Stream:
    name: bytes
    next: int = 0
    chain: PositionChain | None = None
    """Chain of the last event; continued, not recomputed from its beginning each time."""


@dataclass(slots=True)
class _Sending:
    """An event in flight or waiting; `resend` if it must leave once more after that."""

    period: int
    unacknowledged: int = 0
    """Candidates that the session has and the broker has not acknowledged; 0 while the event waits."""
    resend: bool = False
    rounds: bool = False
    """True if a subscriber asked for it."""


_ANSWER_US: Final = 1_000_000
"""Assumed time of a broker to acknowledge one window of messages."""
FAKE_KEY_BYTES: Final = 32
"""Size of the key from which an event's fakes are made."""

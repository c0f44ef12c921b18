"""The subscriber: the owner's subscriptions as filters at the broker, and the notifications that result.

Each interest is subscribed to together with its decoys, in one random order, and unsubscribed together with them.
Arriving candidates are winnowed. A notification that matches decoys only, or only shares a cell with the interest, is
discarded after it has been opened. The broker learns nothing of this: each message is acknowledged (`session`), waits
for a moment, and is opened when all messages that came with it are acknowledged too. Otherwise the time it takes to
open the truth would show.

The subscriber reports what it may have missed (`repeats`) in these cases:

- after every new stream, and whenever a publisher announces itself;
- when the broker has accepted a new interest on an existing stream: a subscriber whose session was quicker than its
  owner must not get less;
- when the inbox had no room for a notification and has some again: otherwise the broker would have to keep what the
  owner does not take, and that would show;
- when a candidate is missing that must have arrived (`stream_gaps`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from veilcast.core.inbox import Inbox
from veilcast.core.outbox import publication_id
from veilcast.core.subscriptions import SharedInterest, Subscriptions
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.foil.config import FoilConfig
from veilcast.foil.decoys import make_decoys
from veilcast.foil.event import split_candidate
from veilcast.foil.repeats import SessionAbsences, check_presence, seal_repeat_request
from veilcast.foil.session_periods import SessionPeriod, SessionPeriods
from veilcast.foil.stream_gaps import StreamGaps, StreamKey
from veilcast.foil.subscriber_store import SubscriberStore
from veilcast.foil.topic_names import InterestArea, locate_interest
from veilcast.foil.winnower import Winnower
from veilcast.machine import Delivered, Entropy, Note, Waiting
from veilcast.topics import Conjunction, check_interest
from veilcast.wire.mqtt import PublishPacket, filter_matches


class FoilSubscriber:
    """Bounded: `subscriptions_max`, `filters_max` in each session, and the inbox.

    Paper profile: `hold` receives candidates of unknown chains. `refuse` receives errors of rejected input. `excess`
    counts true events that no subscription had asked for.
    """

    def __init__(
        self,
        config: FoilConfig,
        link: Secret,
        spans: SessionPeriods,
        winnower: Winnower,
        remembering: SubscriberStore,
        hold: Callable[[SessionPeriod, str, bytes, int], None] | None,
        refuse: Callable[[Exception], None],
        first_life: bool,
        entropy: Entropy,
    ) -> None:
        self._config, self._spans, self._winnower, self._hold = config, spans, winnower, hold
        self._refuse, self._remembering = refuse, remembering
        self._decoy_key, self._first_life, self._entropy = derive(link, b"vc/foil-decoys"), first_life, entropy
        self._wishes = Subscriptions(config.subscriptions_max)
        self._areas: dict[bytes, list[InterestArea]] = {}
        """Area of each interest, followed by its decoys."""
        self._spelled: dict[tuple[int, bytes], list[str]] = {}
        """Filters of each session period and interest."""
        self._inbox = Inbox(unread_max=config.unread_max, seen_max=config.seen_max, again_us=config.deliver_again_us)
        self._absences: dict[int, SessionAbsences] = {}
        self._asking: Timers[tuple[int, str]] = Timers()
        self._asked_us: dict[tuple[int, str], int] = {}
        self._under_way: dict[tuple[int, str], bool] = {}
        """Requests that the broker has not acknowledged, and whether there is more to report since."""
        self._fresh: dict[tuple[int, bytes], SharedInterest] = {}
        """Interests that the broker has not accepted yet, in sessions that were ready before."""
        self._full: dict[int, None] = {}
        self._gaps = StreamGaps(config.settle_us, config.keep_us)
        self._whole: frozenset[str] = frozenset()
        """Topics that are subscribed to as a whole."""
        self._arrived: deque[tuple[SessionPeriod, str, PublishPacket]] = deque()
        self._look_us: int | None = None
        self.excess = 0
        self.counts: Counter[str] = winnower.counts

    def __len__(self) -> int:
        return len(self._wishes)

    # --- the owner

    def subscribe(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """`LocalError` for an interest that cannot be granted, or if there is no capacity."""
        span = self._spans.current(now)
        schema = span.keys(topic).record.schema
        check_interest(interest, topic, schema)
        area = locate_interest(interest, schema)
        areas = [area, *make_decoys(area, topic, schema, self._config, self._decoy_key)]
        filters = self._filters(span)
        filters.update(dict.fromkeys(self._of_areas(span, topic, areas)))
        if len(filters) > self._config.filters_max:
            raise LocalError(f"{len(filters)} filters, and a session has {self._config.filters_max} at most")
        wish = self._wishes.add(number, topic, interest, now)
        self._areas[wish.key] = areas
        self._watch()
        for each in self._spans:
            wanted = self._wanted(each, wish)
            if each.session.ready and not each.session.has_granted(wanted):
                self._fresh[each.number, wish.key] = wish
                self._absences[each.number].mark_away(now)
            each.session.subscribe(wanted, now)
        self.filters_granted(now)

    def unsubscribe(self, number: int, now: int) -> None:
        wish = self._wishes.remove(number)
        self._inbox.end_subscription(number)
        if wish not in self._wishes:
            for span in self._spans:
                gone = self._wanted(span, wish)
                kept = self._filters(span)
                span.session.unsubscribe([each for each in gone if each not in kept], now)
            del self._areas[wish.key]
            self._fresh = {key: each for key, each in self._fresh.items() if each is not wish}
            self._watch()
            self._spelled = {key: filters for key, filters in self._spelled.items() if key[1] != wish.key}

    def acknowledge(self, note: bytes, now: int) -> None:
        if note in self._inbox:
            self._remembering.add(note, now)
        self._inbox.acknowledge(note)
        if self._full and len(self._inbox) <= self._config.unread_max // 2:
            for number in self._full:
                if (span := self._spans.get(number)) is not None and span.session.ready:
                    self._back(span, now)
            self._full = {}

    # --- sessions

    def period_opened(self, span: SessionPeriod, now: int) -> None:
        first = self._first_life and span.number <= self._spans.number(self._spans.started_us)
        self._absences[span.number] = SessionAbsences(self._spans.started_us if first else 0, self._entropy)
        span.session.subscribe(self._filters(span), now)

    def session_ready(self, span: SessionPeriod, now: int) -> None:
        self._fresh = {key: wish for key, wish in self._fresh.items() if key[0] != span.number}
        self._back(span, now)
        self.filters_granted(now)

    def filters_granted(self, now: int) -> None:
        """Filters were granted: report active subscriptions to the owner, and new interests to publishers."""
        self._catch_up(now)
        span = self._spans.get(self._spans.number(now))
        if span is None:
            return  # Its session is still to come, or our membership has ended.
        for wish in self._wishes:
            if not wish.is_active and span.session.ready and span.session.has_granted(self._wanted(span, wish)):
                self._wishes.activate(wish, now)

    def session_lost(self, span: SessionPeriod, now: int) -> None:
        self._absences[span.number].mark_away(span.session.confirmed_us)

    def period_ended(self, number: int) -> None:
        self._absences.pop(number, None)
        self._full.pop(number, None)
        self._gaps.end_period(number)
        self._fresh = {key: wish for key, wish in self._fresh.items() if key[0] != number}
        self._spelled = {key: filters for key, filters in self._spelled.items() if key[0] != number}
        for key in [key for key in self._asked_us if key[0] == number]:
            del self._asked_us[key]
        for key in [key for key in self._under_way if key[0] == number]:
            del self._under_way[key]
        for key in [key for key in self._asking if key[0] == number]:
            self._asking.cancel(key)

    # --- what comes

    def receive_candidate(self, span: SessionPeriod, topic: str, publish: PublishPacket, now: int) -> None:
        """Queue a message that may be a candidate."""
        self._arrived.append((span, topic, publish))
        if len(self._arrived) > ARRIVED_MAX:
            self._look(now)
        elif self._look_us is None:
            self._look_us = now + self._config.winnow_us

    def _look(self, now: int) -> None:
        self._look_us = None
        while self._arrived:
            try:
                self._sift(*self._arrived.popleft(), now)
            except Exception as error:  # A `LocalError` here: a grant of ours has ended.
                self._refuse(error)

    def _sift(self, span: SessionPeriod, topic: str, publish: PublishPacket, now: int) -> None:
        if self._hold is not None and not self._is_meant(span, topic, publish.topic):
            self.counts["decoy"] += 1  # The paper asks only about what was meant.
            return
        if topic in self._whole:
            head, _ = split_candidate(publish.payload)
            self._gaps.received(StreamKey(span.number, topic, head.stream), head, now)
        self.take_candidate(span, topic, publish.payload, now)

    def take_candidate(self, span: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        letter = self._winnower.winnow(span, topic, payload)
        if letter is None:
            if self._hold is not None and self._winnower.chain_unknown:
                self._hold(span, topic, payload, now)
            return
        if topic in self._whole:
            head, _ = split_candidate(payload)
            self._gaps.opened_truth(StreamKey(span.number, topic, head.stream), head.number, now)
        publication = letter.content.publication
        wishes = [wish for wish in self._wishes if wish.topic == topic and wish.interest.matches(publication)]
        readers = [number for wish in wishes for number in wish.numbers]
        self.excess += not readers
        if readers and len(self._inbox) >= self._config.unread_max:
            if span.number in self._absences:  # Or its session has ended since it came, and nobody can be asked there.
                self._full[span.number] = None
                self._absences[span.number].mark_away(now)
            return
        self._winnower.mark_seen(payload)
        note = Note(publication_id(letter), publication)
        if note.id in self._remembering:
            self.counts["double"] += 1
        else:
            self._inbox.put(readers, note, None, now)

    def handle_presence(self, span: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """A publisher is online; raises `RemoteError` for an invalid announcement."""
        check_presence(span.keys(topic), payload)
        key = (span.number, topic)
        if key not in self._asking:
            self._asking.set(
                key, max(now, self._asked_us.get(key, now - self._config.again_us) + self._config.again_us)
            )

    # --- time

    def handle(self, now: int) -> None:
        self._inbox.handle(now)
        self._remembering.handle(now)
        if self._look_us is not None and now >= self._look_us:
            self._look(now)
        for number, since_us in self._gaps.due(now):
            if (span := self._spans.get(number)) is not None and span.session.ready:
                self._absences[number].mark_away(since_us)
                self._back(span, now)
        for number, topic in self._asking.pop_due(now):
            if (span := self._spans.get(number)) is not None:
                self._ask(span, topic, now)

    def next_us(self) -> int | None:
        parts = (self._inbox, self._asking, self._gaps, self._remembering)
        return earliest(self._look_us, *(part.next_us() for part in parts))

    def next_event(self) -> Waiting | Delivered | None:
        return self._wishes.notices.pop(0) if self._wishes.notices else self._inbox.next_delivery()

    def sizes(self) -> dict[str, int]:
        return {
            "subscriptions": len(self._wishes),
            "filters": max((span.session.filters for span in self._spans), default=0),
            "arrived": len(self._arrived),
            "inbox": len(self._inbox),
            "seen": max(self._inbox.seen_count, len(self._winnower)),
            "gaps": len(self._gaps),
            "remembered": len(self._remembering),
            "absences": max(map(len, self._absences.values()), default=0),
        }

    # --- inside

    def _watch(self) -> None:
        self._whole = frozenset(
            wish.topic for wish in self._wishes if all(side is None for side in self._areas[wish.key][0])
        )
        self._gaps.watch(self._whole)

    def _filters(self, span: SessionPeriod) -> dict[str, None]:
        return dict.fromkeys(each for wish in self._wishes for each in self._wanted(span, wish))

    def _wanted(self, span: SessionPeriod, wish: SharedInterest) -> list[str]:
        """The filters of an interest and its decoys in this session, and the topic on which publishers announce
        themselves."""
        key = (span.number, wish.key)
        if key not in self._spelled:
            try:
                filters = self._of_areas(span, wish.topic, self._areas[wish.key])
                self._spelled[key] = [*filters, span.names(wish.topic).presence_topic]
            except LocalError:
                self._spelled[key] = []  # No grant of ours is for this epoch.
        return self._spelled[key]

    def _of_areas(self, span: SessionPeriod, topic: str, areas: list[InterestArea]) -> list[str]:
        names = span.names(topic)
        return [each for area in areas for each in names.filters(area)]

    def _is_meant(self, span: SessionPeriod, topic: str, name: str) -> bool:
        names = span.names(topic)
        return any(
            filter_matches(each, name)
            for wish in self._wishes
            if wish.topic == topic
            for each in names.filters(self._areas[wish.key][0])
        )

    def _back(self, span: SessionPeriod, now: int) -> None:
        self._absences[span.number].mark_back(now)
        for topic in dict.fromkeys(wish.topic for wish in self._wishes):
            self._ask(span, topic, now)

    def _catch_up(self, now: int) -> None:
        for (number, spelled), wish in list(self._fresh.items()):
            span = self._spans.get(number)
            if span is not None and span.session.ready and span.session.has_granted(self._wanted(span, wish)):
                del self._fresh[number, spelled]
                self._absences[number].mark_back(now)
                self._ask(span, wish.topic, now)

    def _ask(self, span: SessionPeriod, topic: str, now: int) -> None:
        key = (span.number, topic)
        self._asking.cancel(key)
        if key in self._under_way:
            self._under_way[key] = True
            return
        standing = self._absences[span.number].current(now - self._config.keep_us - self._config.margin_us)
        try:
            keys = span.keys(topic)
        except LocalError:
            return  # No grant of ours is for this epoch.
        if not standing:
            return
        self._asked_us[key], self._under_way[key] = now, False
        payload = seal_repeat_request(keys, standing, self._entropy)
        span.session.publish(span.names(topic).repeat_topic, payload, lambda now: self._asked(span, topic, now), now)

    def _asked(self, span: SessionPeriod, topic: str, now: int) -> None:
        if self._under_way.pop((span.number, topic), False):
            self._ask(span, topic, now)


ARRIVED_MAX: Final = 1_024
"""Queued messages at which all are opened at once."""

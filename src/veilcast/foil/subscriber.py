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

    Paper profile: `hold` receives candidates of unknown chains. `refuse` receives errors of rejected input. `on_excess`
    counts true events that no subscription had asked for.
    """

    def __init__(
        self,
        config: FoilConfig,
        link: Secret,
        periods: SessionPeriods,
        winnower: Winnower,
        store: SubscriberStore,
        hold: Callable[[SessionPeriod, str, bytes, int], None] | None,
        refuse: Callable[[Exception], None],
        on_excess: Callable[[], None],
        first_run: bool,
        entropy: Entropy,
    ) -> None:
        self._config, self._periods, self._winnower, self._hold = config, periods, winnower, hold
        self._refuse, self._on_excess, self._store = refuse, on_excess, store
        self._decoy_key, self._first_run, self._entropy = derive(link, b"vc/foil-decoys"), first_run, entropy
        self._subscriptions = Subscriptions(config.subscriptions_max)
        self._areas: dict[bytes, list[InterestArea]] = {}
        """Area of each interest, followed by its decoys."""
        self._interest_filters_cache: dict[tuple[int, bytes], list[str]] = {}
        """Filters of each session period and interest."""
        self._inbox = Inbox(unread_max=config.unread_max, seen_max=config.seen_max, again_us=config.deliver_again_us)
        self._absences: dict[int, SessionAbsences] = {}
        self._request_timers: Timers[tuple[int, str]] = Timers()
        self._requested_us: dict[tuple[int, str], int] = {}
        self._in_flight: dict[tuple[int, str], bool] = {}
        """Requests that the broker has not acknowledged, and whether there is more to report since."""
        self._ungranted: dict[tuple[int, bytes], SharedInterest] = {}
        """Interests that the broker has not accepted yet, in sessions that were ready before."""
        self._overflowed: dict[int, None] = {}
        self._gaps = StreamGaps(config.settle_us, config.keep_us)
        self._whole_topics: frozenset[str] = frozenset()
        """Topics that are subscribed to as a whole."""
        self._queue: deque[tuple[SessionPeriod, str, PublishPacket]] = deque()
        self._open_at_us: int | None = None
        self.counts: Counter[str] = winnower.counts

    def __len__(self) -> int:
        return len(self._subscriptions)

    # --- the owner

    def subscribe(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """`LocalError` for an interest that cannot be granted, or if there is no capacity."""
        period = self._periods.current(now)
        schema = period.keys(topic).record.schema
        check_interest(interest, topic, schema)
        area = locate_interest(interest, schema)
        areas = [area, *make_decoys(area, topic, schema, self._config, self._decoy_key)]
        filters = self._filters(period)
        filters.update(dict.fromkeys(self._area_filters(period, topic, areas)))
        if len(filters) > self._config.filters_max:
            raise LocalError(f"{len(filters)} filters, and a session has {self._config.filters_max} at most")
        shared = self._subscriptions.add(number, topic, interest, now)
        self._areas[shared.key] = areas
        self._update_watched()
        for each in self._periods:
            wanted = self._interest_filters(each, shared)
            if each.session.ready and not each.session.has_granted(wanted):
                self._ungranted[each.number, shared.key] = shared
                self._absences[each.number].mark_away(now)
            each.session.subscribe(wanted, now)
        self.filters_granted(now)

    def unsubscribe(self, number: int, now: int) -> None:
        shared = self._subscriptions.remove(number)
        self._inbox.end_subscription(number)
        if shared not in self._subscriptions:
            for period in self._periods:
                dropped = self._interest_filters(period, shared)
                kept = self._filters(period)
                period.session.unsubscribe([each for each in dropped if each not in kept], now)
            del self._areas[shared.key]
            self._ungranted = {key: each for key, each in self._ungranted.items() if each is not shared}
            self._update_watched()
            self._interest_filters_cache = {
                key: filters for key, filters in self._interest_filters_cache.items() if key[1] != shared.key
            }

    def acknowledge(self, note: bytes, now: int) -> None:
        if note in self._inbox:
            self._store.add(note, now)
        self._inbox.acknowledge(note)
        if self._overflowed and len(self._inbox) <= self._config.unread_max // 2:
            for number in self._overflowed:
                if (period := self._periods.get(number)) is not None and period.session.ready:
                    self._report_return(period, now)
            self._overflowed = {}

    # --- sessions

    def period_opened(self, period: SessionPeriod, now: int) -> None:
        first = self._first_run and period.number <= self._periods.number(self._periods.started_us)
        self._absences[period.number] = SessionAbsences(self._periods.started_us if first else 0, self._entropy)
        period.session.subscribe(self._filters(period), now)

    def session_ready(self, period: SessionPeriod, now: int) -> None:
        self._ungranted = {key: shared for key, shared in self._ungranted.items() if key[0] != period.number}
        self._report_return(period, now)
        self.filters_granted(now)

    def filters_granted(self, now: int) -> None:
        """Filters were granted: report active subscriptions to the owner, and new interests to publishers."""
        self._report_granted(now)
        period = self._periods.get(self._periods.number(now))
        if period is None:
            return  # The session is not open yet, or the membership has expired.
        for shared in self._subscriptions:
            if (
                not shared.is_active
                and period.session.ready
                and period.session.has_granted(self._interest_filters(period, shared))
            ):
                self._subscriptions.activate(shared, now)

    def session_lost(self, period: SessionPeriod, now: int) -> None:
        self._absences[period.number].mark_away(period.session.confirmed_us)

    def period_ended(self, number: int) -> None:
        self._absences.pop(number, None)
        self._overflowed.pop(number, None)
        self._gaps.end_period(number)
        self._ungranted = {key: shared for key, shared in self._ungranted.items() if key[0] != number}
        self._interest_filters_cache = {
            key: filters for key, filters in self._interest_filters_cache.items() if key[0] != number
        }
        for key in [key for key in self._requested_us if key[0] == number]:
            del self._requested_us[key]
        for key in [key for key in self._in_flight if key[0] == number]:
            del self._in_flight[key]
        for key in [key for key in self._request_timers if key[0] == number]:
            self._request_timers.cancel(key)

    # --- what comes

    def receive_candidate(self, period: SessionPeriod, topic: str, publish: PublishPacket, now: int) -> None:
        """Queue a message that may be a candidate."""
        self._queue.append((period, topic, publish))
        if len(self._queue) > ARRIVED_MAX:
            self._open_queue(now)
        elif self._open_at_us is None:
            self._open_at_us = now + self._config.winnow_us

    def _open_queue(self, now: int) -> None:
        self._open_at_us = None
        while self._queue:
            try:
                self._open_candidate(*self._queue.popleft(), now)
            except Exception as error:  # A `LocalError` here means an expired grant.
                self._refuse(error)

    def _open_candidate(self, period: SessionPeriod, topic: str, publish: PublishPacket, now: int) -> None:
        if self._hold is not None and not self._is_true_interest(period, topic, publish.topic):
            self.counts["decoy"] += 1  # The paper asks only about true interests.
            return
        if topic in self._whole_topics:
            head, _ = split_candidate(publish.payload)
            self._gaps.received(StreamKey(period.number, topic, head.stream), head, now)
        self.take_candidate(period, topic, publish.payload, now)

    def take_candidate(self, period: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        pending = self._winnower.winnow(period, topic, payload)
        if pending is None:
            if self._hold is not None and self._winnower.chain_unknown:
                self._hold(period, topic, payload, now)
            return
        if topic in self._whole_topics:
            head, _ = split_candidate(payload)
            self._gaps.opened_truth(StreamKey(period.number, topic, head.stream), head.number, now)
        publication = pending.content.publication
        interests = [
            shared for shared in self._subscriptions if shared.topic == topic and shared.interest.matches(publication)
        ]
        numbers = [number for shared in interests for number in shared.numbers]
        if not numbers:
            self._on_excess()
        if numbers and len(self._inbox) >= self._config.unread_max:
            if (
                period.number in self._absences
            ):  # Otherwise its session has ended meanwhile, and no publisher can be asked there.
                self._overflowed[period.number] = None
                self._absences[period.number].mark_away(now)
            return
        self._winnower.mark_seen(payload)
        note = Note(publication_id(pending), publication)
        if note.id in self._store:
            self.counts["double"] += 1
        else:
            self._inbox.put(numbers, note, None, now)

    def handle_presence(self, period: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """A publisher is online; raises `RemoteError` for an invalid announcement."""
        check_presence(period.keys(topic), payload)
        key = (period.number, topic)
        if key not in self._request_timers:
            self._request_timers.set(
                key, max(now, self._requested_us.get(key, now - self._config.again_us) + self._config.again_us)
            )

    # --- time

    def handle(self, now: int) -> None:
        self._inbox.handle(now)
        self._store.handle(now)
        if self._open_at_us is not None and now >= self._open_at_us:
            self._open_queue(now)
        for number, since_us in self._gaps.due(now):
            if (period := self._periods.get(number)) is not None and period.session.ready:
                self._absences[number].mark_away(since_us)
                self._report_return(period, now)
        for number, topic in self._request_timers.pop_due(now):
            if (period := self._periods.get(number)) is not None:
                self._request_repeats(period, topic, now)

    def next_us(self) -> int | None:
        parts = (self._inbox, self._request_timers, self._gaps, self._store)
        return earliest(self._open_at_us, *(part.next_us() for part in parts))

    def next_event(self) -> Waiting | Delivered | None:
        return self._subscriptions.notices.pop(0) if self._subscriptions.notices else self._inbox.next_delivery()

    def sizes(self) -> dict[str, int]:
        return {
            "subscriptions": len(self._subscriptions),
            "filters": max((period.session.filters for period in self._periods), default=0),
            "arrived": len(self._queue),
            "inbox": len(self._inbox),
            "seen": max(self._inbox.seen_count, len(self._winnower)),
            "gaps": len(self._gaps),
            "remembered": len(self._store),
            "absences": max(map(len, self._absences.values()), default=0),
        }

    # --- inside

    def _update_watched(self) -> None:
        self._whole_topics = frozenset(
            shared.topic for shared in self._subscriptions if all(side is None for side in self._areas[shared.key][0])
        )
        self._gaps.watch(self._whole_topics)

    def _filters(self, period: SessionPeriod) -> dict[str, None]:
        return dict.fromkeys(each for shared in self._subscriptions for each in self._interest_filters(period, shared))

    def _interest_filters(self, period: SessionPeriod, shared: SharedInterest) -> list[str]:
        """The filters of an interest and its decoys in this session, and the topic on which publishers announce
        themselves."""
        key = (period.number, shared.key)
        if key not in self._interest_filters_cache:
            try:
                filters = self._area_filters(period, shared.topic, self._areas[shared.key])
                self._interest_filters_cache[key] = [*filters, period.names(shared.topic).presence_topic]
            except LocalError:
                self._interest_filters_cache[key] = []  # No grant covers this epoch.
        return self._interest_filters_cache[key]

    def _area_filters(self, period: SessionPeriod, topic: str, areas: list[InterestArea]) -> list[str]:
        names = period.names(topic)
        return [each for area in areas for each in names.filters(area)]

    def _is_true_interest(self, period: SessionPeriod, topic: str, name: str) -> bool:
        names = period.names(topic)
        return any(
            filter_matches(each, name)
            for shared in self._subscriptions
            if shared.topic == topic
            for each in names.filters(self._areas[shared.key][0])
        )

    def _report_return(self, period: SessionPeriod, now: int) -> None:
        self._absences[period.number].mark_back(now)
        for topic in dict.fromkeys(shared.topic for shared in self._subscriptions):
            self._request_repeats(period, topic, now)

    def _report_granted(self, now: int) -> None:
        for (number, key_bytes), shared in list(self._ungranted.items()):
            period = self._periods.get(number)
            if (
                period is not None
                and period.session.ready
                and period.session.has_granted(self._interest_filters(period, shared))
            ):
                del self._ungranted[number, key_bytes]
                self._absences[number].mark_back(now)
                self._request_repeats(period, shared.topic, now)

    def _request_repeats(self, period: SessionPeriod, topic: str, now: int) -> None:
        key = (period.number, topic)
        self._request_timers.cancel(key)
        if key in self._in_flight:
            self._in_flight[key] = True
            return
        absences = self._absences[period.number].current(now - self._config.keep_us - self._config.margin_us)
        try:
            keys = period.keys(topic)
        except LocalError:
            return  # No grant covers this epoch.
        if not absences:
            return
        self._requested_us[key], self._in_flight[key] = now, False
        payload = seal_repeat_request(keys, absences, self._entropy)
        period.session.publish(
            period.names(topic).repeat_topic, payload, lambda now: self._request_acknowledged(period, topic, now), now
        )

    def _request_acknowledged(self, period: SessionPeriod, topic: str, now: int) -> None:
        if self._in_flight.pop((period.number, topic), False):
            self._request_repeats(period, topic, now)


ARRIVED_MAX: Final = 1_024
"""Queued messages at which all are opened at once."""

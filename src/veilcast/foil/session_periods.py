"""Session periods: the time for which one session with the broker stands, and the topic names used in it.

**hardened**: a period is an epoch. Its session has its own client id and its own stream, and subscribes only to the
topics of its own epoch, so that no session links the names of two epochs. It opens at a random moment shortly before
the epoch begins, so that subscribers are there when publishers start. It stays for a while after the end, for repeats.
So there are few sessions at any time, and two at a boundary. Nothing has to be handed over from one to the next, and an
event that arrives through both is recognised by its id. (A single stream up to the end of an epoch, then a new name,
would leave a gap, or put two names on one stream.) A broker can still see that sessions from one place begin one after
the other.

**paper**: there is one permanent period; its epoch advances with time, so that expired grants stay expired.

Client ids are derived from a secret that a member draws once and keeps: a restarted member comes back to its session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.core.member_topics import MemberTopics
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.foil.config import FoilConfig
from veilcast.foil.session import Login, MqttSession, SessionCallbacks
from veilcast.foil.topic_names import TopicNames
from veilcast.machine import Address, Event, Frame


class SessionPeriod:
    """One period. `epoch` is the epoch of its keys."""

    def __init__(self, number: int, epoch: int, prefix: str, topics: MemberTopics) -> None:
        self.number, self.epoch, self._prefix, self._topics = number, epoch, prefix, topics
        self.published = topics.publishable(epoch)
        """Topics on which the member can publish."""
        self.session: MqttSession
        self._names: dict[str, TopicNames] = {}
        self._called: dict[str, str] = {}

    def advance_epoch(self, epoch: int) -> None:
        """Advance the epoch of a permanent period."""
        if epoch != self.epoch:
            self.epoch = epoch
            try:
                self.published = self._topics.publishable(epoch)
            except LocalError:
                self.published = []  # The membership has ended.

    def keys(self, topic: str) -> TopicKeys:
        """`LocalError` if no grant covers the epoch, or the topic has another profile."""
        return self._topics.keys(topic, self.epoch)

    def names(self, topic: str) -> TopicNames:
        if topic not in self._names:
            keys = self.keys(topic)
            secret = keys if keys.record.profile == "hardened" else None
            names = self._names[topic] = TopicNames(self._prefix, topic, keys.record.schema, secret)
            self._called[names.name] = topic
        return self._names[topic]

    def topic_named(self, name: str) -> str | None:
        """The topic with this name, if it is used here."""
        return self._called.get(name)


class SessionPeriods:
    """`ears` makes the callbacks of a period's session; in the `first_life` there are no sessions to come back to."""

    def __init__(
        self,
        config: FoilConfig,
        keyring: Keyring,
        broker: Address,
        login: Login | None,
        secret: Secret,
        first_life: bool,
        ears: Callable[[SessionPeriod], SessionCallbacks],
        rng: Random,
        now: int,
    ) -> None:
        self._config, self._epoch_us, self._broker, self._login = config, keyring.epoch_us, broker, login
        self._secret, self._ears, self._rng = secret, ears, rng
        self._topics = MemberTopics(config.profile, keyring)
        self.started_us = now
        self._paper = config.profile == "paper"
        self._ahead_us = min(config.ahead_us, self._epoch_us // 2)
        self.linger_us = min(config.keep_us, LINGER_EPOCHS * self._epoch_us)
        self._open: dict[int, SessionPeriod] = {}
        self._ending: list[MqttSession] = []
        self._alarms: Timers[tuple[bool, int]] = Timers()
        self.newly_opened: list[SessionPeriod] = []
        """Periods opened since the list was last emptied: the caller subscribes there."""
        epoch = epoch_of(now, self._epoch_us)
        if self._paper:
            self._start(0, epoch, now)
            return
        # Who is new is owed what was published within the margin, by sessions of the epoch that it was published in.
        back_us = min(config.margin_us, self.linger_us) if first_life else self.linger_us
        for past in range(epoch_of(now - back_us, self._epoch_us), epoch + 1):
            self._start(past, past, now)
        self._await(epoch + 1, now)

    def __iter__(self) -> Iterator[SessionPeriod]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def number(self, now: int) -> int:
        """The number of the period for a publication at this time."""
        return 0 if self._paper else epoch_of(now, self._epoch_us)

    def current(self, now: int) -> SessionPeriod:
        span = self._open.get(self.number(now))
        if span is None:
            # The edge has come before its alarm, or our membership has ended.
            self._start(self.number(now), self.number(now), now)
            span = self._open.get(self.number(now))
        if span is None:
            raise LocalError("the membership has ended")
        return span

    def get(self, number: int) -> SessionPeriod | None:
        return self._open.get(number)

    def period_of_peer(self, peer: Address) -> SessionPeriod | None:
        return next((span for span in self._open.values() if span.session.peer == peer), None)

    # --- time

    def handle(self, now: int) -> list[int]:
        """Returns the numbers of the periods that have ended."""
        ended = []
        for opens, number in self._alarms.pop_due(now):
            if opens:
                # Whoever was stopped for whole epochs finds their sessions over, and has nothing to begin them for.
                number = max(number, epoch_of(now - self.linger_us, self._epoch_us))
                self._start(number, number, now)
                self._await(number + 1, now)
            elif (span := self._open.pop(number, None)) is not None:
                span.session.end(now)
                self._ending.append(span.session)
                ended.append(number)
        for span in self:
            if self._paper:
                span.advance_epoch(epoch_of(now, self._epoch_us))
            span.session.handle(now)
        return ended

    def next_us(self) -> int | None:
        return earliest(self._alarms.next_us(), *(span.session.next_us() for span in self._open.values()))

    # --- the driver

    def frames(self) -> list[Frame]:
        frames = []
        for session in self._sessions():
            frames += session.frames
            session.frames.clear()
        return frames

    def next_event(self) -> Event | None:
        for session in self._sessions():
            if (event := session.next_event()) is not None:
                return event
        self._ending.clear()
        return None

    # --- inside

    def _sessions(self) -> list[MqttSession]:
        return [*(span.session for span in self._open.values()), *self._ending]

    def _start(self, number: int, epoch: int, now: int) -> None:
        if number in self._open:
            return
        try:
            span = SessionPeriod(number, epoch, self._config.prefix, self._topics)
        except LocalError:
            return  # The membership does not reach so far; there is nothing to be asked for.
        client = derive(self._secret, b"vc/foil-client", number.to_bytes(8, "big"), size=CLIENT_ID_BYTES).reveal().hex()
        expiry_us = self._epoch_us + self.linger_us
        peer = name_stream(self._broker, str(number))
        span.session = MqttSession(self._config, peer, client, self._login, expiry_us, self._ears(span), self._rng, now)
        self._open[number] = span
        self.newly_opened.append(span)
        if not self._paper:
            self._alarms.set((False, number), (number + 1) * self._epoch_us + self.linger_us + self._jitter())

    def _await(self, number: int, now: int) -> None:
        self._alarms.set((True, number), max(now, number * self._epoch_us - self._jitter()))

    def _jitter(self) -> int:
        return self._rng.randrange(self._ahead_us + 1)


CLIENT_ID_BYTES: Final = 10
"""In hex, a client id is shorter than the 23 characters that every broker accepts."""

LINGER_EPOCHS: Final = 2
"""A session stays at most this many epochs after its own, however long events are stored: so there are few sessions."""

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
        self._topics_by_name: dict[str, str] = {}

    def advance_epoch(self, epoch: int) -> None:
        """Advance the epoch of a permanent period."""
        if epoch != self.epoch:
            self.epoch = epoch
            try:
                self.published = self._topics.publishable(epoch)
            except LocalError:
                self.published = []  # The membership has expired.

    def keys(self, topic: str) -> TopicKeys:
        """`LocalError` if no grant covers the epoch, or the topic has another profile."""
        return self._topics.keys(topic, self.epoch)

    def names(self, topic: str) -> TopicNames:
        if topic not in self._names:
            keys = self.keys(topic)
            secret = keys if keys.record.profile == "hardened" else None
            names = self._names[topic] = TopicNames(self._prefix, topic, keys.record.schema, secret)
            self._topics_by_name[names.name] = topic
        return self._names[topic]

    def topic_named(self, name: str) -> str | None:
        """The topic with this name, if it is used here."""
        return self._topics_by_name.get(name)


class SessionPeriods:
    """`make_callbacks` makes the callbacks of a period's session; a `first_run` has no sessions to come back to."""

    def __init__(
        self,
        config: FoilConfig,
        keyring: Keyring,
        broker: Address,
        login: Login | None,
        secret: Secret,
        first_run: bool,
        make_callbacks: Callable[[SessionPeriod], SessionCallbacks],
        rng: Random,
        now: int,
    ) -> None:
        self._config, self._epoch_us, self._broker, self._login = config, keyring.epoch_us, broker, login
        self._secret, self._make_callbacks, self._rng = secret, make_callbacks, rng
        self._topics = MemberTopics(config.profile, keyring)
        self.started_us = now
        self._paper = config.profile == "paper"
        self._ahead_us = min(config.ahead_us, self._epoch_us // 2)
        self.linger_us = min(config.keep_us, LINGER_EPOCHS * self._epoch_us)
        self._open: dict[int, SessionPeriod] = {}
        self._ending: list[MqttSession] = []
        self._timers: Timers[tuple[bool, int]] = Timers()
        self.newly_opened: list[SessionPeriod] = []
        """Periods opened since the list was last emptied: the caller subscribes there."""
        epoch = epoch_of(now, self._epoch_us)
        if self._paper:
            self._open_period(0, epoch, now)
            return
        # A new subscriber gets publications within the margin, through sessions of their own epochs.
        back_us = min(config.margin_us, self.linger_us) if first_run else self.linger_us
        for past in range(epoch_of(now - back_us, self._epoch_us), epoch + 1):
            self._open_period(past, past, now)
        self._schedule_opening(epoch + 1, now)

    def __iter__(self) -> Iterator[SessionPeriod]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def number(self, now: int) -> int:
        """The number of the period for a publication at this time."""
        return 0 if self._paper else epoch_of(now, self._epoch_us)

    def current(self, now: int) -> SessionPeriod:
        period = self._open.get(self.number(now))
        if period is None:
            # The epoch began before its timer fired, or the membership has expired.
            self._open_period(self.number(now), self.number(now), now)
            period = self._open.get(self.number(now))
        if period is None:
            raise LocalError("the membership has ended")
        return period

    def get(self, number: int) -> SessionPeriod | None:
        return self._open.get(number)

    def period_of_peer(self, peer: Address) -> SessionPeriod | None:
        return next((period for period in self._open.values() if period.session.peer == peer), None)

    # --- time

    def handle(self, now: int) -> list[int]:
        """Returns the numbers of the periods that have ended."""
        ended = []
        for opens, number in self._timers.pop_due(now):
            if opens:
                # A member that was stopped for whole epochs opens no sessions for them: they are over.
                number = max(number, epoch_of(now - self.linger_us, self._epoch_us))
                self._open_period(number, number, now)
                self._schedule_opening(number + 1, now)
            elif (period := self._open.pop(number, None)) is not None:
                period.session.end(now)
                self._ending.append(period.session)
                ended.append(number)
        for period in self:
            if self._paper:
                period.advance_epoch(epoch_of(now, self._epoch_us))
            period.session.handle(now)
        return ended

    def next_us(self) -> int | None:
        return earliest(self._timers.next_us(), *(period.session.next_us() for period in self._open.values()))

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
        return [*(period.session for period in self._open.values()), *self._ending]

    def _open_period(self, number: int, epoch: int, now: int) -> None:
        if number in self._open:
            return
        try:
            period = SessionPeriod(number, epoch, self._config.prefix, self._topics)
        except LocalError:
            return  # The membership does not cover that epoch; there is nothing to subscribe to.
        client = derive(self._secret, b"vc/foil-client", number.to_bytes(8, "big"), size=CLIENT_ID_BYTES).reveal().hex()
        expiry_us = self._epoch_us + self.linger_us
        peer = name_stream(self._broker, str(number))
        period.session = MqttSession(
            self._config, peer, client, self._login, expiry_us, self._make_callbacks(period), self._rng, now
        )
        self._open[number] = period
        self.newly_opened.append(period)
        if not self._paper:
            self._timers.set((False, number), (number + 1) * self._epoch_us + self.linger_us + self._jitter())

    def _schedule_opening(self, number: int, now: int) -> None:
        self._timers.set((True, number), max(now, number * self._epoch_us - self._jitter()))

    def _jitter(self) -> int:
        return self._rng.randrange(self._ahead_us + 1)


CLIENT_ID_BYTES: Final = 10
"""In hex, a client id is shorter than the 23 characters that every broker accepts."""

LINGER_EPOCHS: Final = 2
"""A session stays at most this many epochs after its own, however long events are stored: so there are few sessions."""

"""A member of the mode "foil": publishes among fakes and reads the truth, through a broker that it does not trust.

The member speaks MQTT itself: a frame is one packet, and its only peer is the broker. So the simulator and the network
carry the same bytes, any broker works, and the member acknowledges only what is known to be safe. A peer is named
`<number>@<broker>` (`core.stream_purpose`): one stream for each session, which the driver opens to the address after
the `@`.

Its parts: `session_periods` has the sessions, `publisher` what goes out, `subscriber` what comes in; in the paper's
profile `confirmation` asks and tells which candidate is true. Over restarts the member keeps its secret, its
publications, the state of its fakes (`publisher_store`), and the ids of read notifications (`subscriber_store`); its
owner makes subscriptions again.

Claim: a subscriber that is away from its broker for less than `keep_us` misses nothing that is on a publisher's disk.
After a longer absence, events that the broker itself loses are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from veilcast.authority.keyring import Keyring
from veilcast.core.member import MemberBase
from veilcast.core.timers import earliest
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError, StaleError
from veilcast.foil.config import FoilConfig
from veilcast.foil.confirmation import PositionAsker, PositionTeller, question_topic
from veilcast.foil.generators.factory import make_dependent, make_generator
from veilcast.foil.positions import derive_topic_chain
from veilcast.foil.publisher import FoilPublisher
from veilcast.foil.publisher_store import PublisherStore
from veilcast.foil.session import Login, SessionCallbacks
from veilcast.foil.session_periods import SessionPeriod, SessionPeriods
from veilcast.foil.subscriber import FoilSubscriber
from veilcast.foil.subscriber_store import SubscriberStore
from veilcast.foil.topic_names import ASK, EVENTS, PRESENCE, REPEATS, TELL
from veilcast.foil.winnower import TopicChainCache, Winnower
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Interest, Publication
from veilcast.topics import topic_of
from veilcast.wire.mqtt import PublishPacket


class FoilMember(MemberBase):
    """A `NodeMember` (`node.modes`), with the notices of `Peers` and `Durable`.

    `broker` is the address to which streams are opened, `login` the member's credentials there. `records` holds the
    records that earlier runs stored and did not settle. `refused` counts rejected input by error class; `excess` counts
    true events that no subscription had asked for.
    """

    def __init__(
        self,
        config: FoilConfig,
        keyring: Keyring,
        broker: Address,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        login: Login | None = None,
    ) -> None:
        _check_attributes(config, keyring)
        super().__init__()
        self._config = config
        self._store = PublisherStore(records or {}, config.records_max, config.kept_max, now)
        first_run = self._store.secret is None
        secret = self._store.secret or Secret(entropy(SECRET_BYTES))
        if first_run:
            self._store.store_secret(secret)
        paper = config.profile == "paper"
        self._asker = PositionAsker(config, keyring, self._take_held, rng, entropy) if paper else None
        self._teller = PositionTeller(config, keyring, secret, entropy) if paper else None
        self._chains = TopicChainCache(config.seeds_max)
        chains = self._chains if self._asker is None else self._asker
        self._winnower = Winnower(keyring.root, chains, config.seen_max)
        self._streams: dict[bytes, str] = {}
        """Paper profile: this member's streams that subscribers may ask about, with their topics."""
        self._periods = SessionPeriods(config, keyring, broker, login, secret, first_run, self._callbacks, rng, now)
        hold = None if self._asker is None else self._asker.hold
        link = keyring.membership.link
        read_notes = SubscriberStore(self._store, config.seen_max)
        self._subscriber = FoilSubscriber(
            config,
            link,
            self._periods,
            self._winnower,
            read_notes,
            hold,
            self._refuse,
            self._count_excess,
            first_run,
            entropy,
        )
        find_chain = derive_topic_chain if self._teller is None else self._teller
        self._publisher = FoilPublisher(
            config, self._periods, self._store, find_chain, self._stream_begun, rng, entropy
        )
        self._open_periods(now)
        self._publisher.resume(now)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Send on every topic that labels the publication, or on none."""
        self._advance(now)
        record = self._publisher.publish(publication, now)
        self._open_periods(now)
        return record

    def withdraw(self, record: int, now: int) -> None:
        self._advance(now)
        self._publisher.withdraw(record, now)

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event reports when the subscription is active."""
        self._advance(now)
        topic, constraints = topic_of(interest)
        self._subscriber.subscribe(self._subscribed + 1, topic, constraints, now)
        self._subscribed += 1
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        self._advance(now)
        self._subscriber.unsubscribe(number, now)

    def acknowledge(self, note: bytes, now: int) -> None:
        self._advance(now)
        self._subscriber.acknowledge(note, now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._advance(now)
        self._receive_with(lambda: self._receive_packet(data, source, now))

    def handle_timer(self, now: int) -> None:
        self._advance(now)
        self._subscriber.handle(now)
        self._publisher.handle(now)
        if self._asker is not None:
            self._asker.handle(now)

    def next_timer(self) -> int | None:
        asker_us = None if self._asker is None else self._asker.next_us()
        return earliest(self._periods.next_us(), self._subscriber.next_us(), self._publisher.next_us(), asker_us)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._frames += self._periods.frames()
        return super().frames_to_send(now, limit)

    def next_event(self) -> Event | None:
        return self._periods.next_event() or self._publisher.next_event() or self._subscriber.next_event()

    def stored(self, record: int, now: int) -> None:
        self._advance(now)
        self._store.stored(record, now)

    def peer_up(self, peer: Address, now: int) -> None:
        self._advance(now)
        if (period := self._periods.period_of_peer(peer)) is not None:
            period.session.peer_up(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._advance(now)
        if (period := self._periods.period_of_peer(peer)) is not None:
            self._frames = [frame for frame in self._frames if frame.destination != peer]
            period.session.peer_lost(now)

    # --- what an owner may want to know

    def delay(self, now: int) -> Delay | None:
        return self._publisher.delay(now)

    def counts(self) -> dict[str, int]:
        """Candidates that arrived and were not delivered, by reason: fakes, duplicates, deliveries for decoys only."""
        return dict(sorted(self._winnower.counts.items()))

    def refusals(self) -> dict[str, int]:
        """Refusals of the broker, and reasons why its stream was given up, with their counts."""
        total = sum((period.session.refusals for period in self._periods), Counter[str]())
        return {why: count for why, count in sorted(total.items()) if count}

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "sessions": len(self._periods),
            "unacknowledged": max((len(period.session) for period in self._periods), default=0),
            "pending": self._store.pending_count,
            "kept": len(self._store),
            "sending": len(self._publisher),
            "requests": self._publisher.request_count,
            "chains": len(self._chains) if self._asker is None else self._asker.chains,
            "held": 0 if self._asker is None else len(self._asker),
            **self._subscriber.sizes(),
        }

    # --- inside

    def _advance(self, now: int) -> None:
        """Sessions begin and end with time, on every call."""
        self.version += 1
        for number in self._periods.handle(now):
            self._subscriber.period_ended(number)
            self._publisher.period_ended(number, now)
        self._open_periods(now)

    def _open_periods(self, now: int) -> None:
        opened, self._periods.newly_opened = self._periods.newly_opened, []
        for period in opened:
            self._subscriber.period_opened(period, now)
            self._publisher.period_opened(period, now)
            if self._asker is not None:
                period.session.subscribe([self._asker.filter], now)

    def _receive_packet(self, data: bytes, source: Address, now: int) -> None:
        period = self._periods.period_of_peer(source)
        if period is None:
            raise StaleError("not a session of this member")
        period.session.receive(data, now)

    def _callbacks(self, period: SessionPeriod) -> SessionCallbacks:
        def on_message(publish: PublishPacket, now: int) -> None:
            self._receive_message(period, publish, now)

        def on_ready(now: int) -> None:
            self._subscriber.session_ready(period, now)
            self._publisher.session_ready(period, now)

        def on_lost(now: int) -> None:
            self._subscriber.session_lost(period, now)
            self._publisher.session_lost(period, now)

        return SessionCallbacks(on_message, on_ready, self._filters_granted, on_lost)

    def _filters_granted(self, now: int) -> None:
        self._subscriber.filters_granted(now)

    def _receive_message(self, period: SessionPeriod, publish: PublishPacket, now: int) -> None:
        """The message has been acknowledged already, and the stream stays up in any case."""
        try:
            self._dispatch(period, publish, now)
        except Exception as error:  # A `LocalError` here means an expired grant.
            self._refuse(error)

    def _dispatch(self, period: SessionPeriod, publish: PublishPacket, now: int) -> None:
        prefix, kind, name = [*publish.topic.split("/", 3), "", "", ""][:3]
        if prefix != self._config.prefix:
            raise MalformedError("not a topic of this mode")
        if kind == ASK and self._teller is not None:
            stream = next((stream for stream in self._streams if question_topic(prefix, stream) == publish.topic), None)
            if stream is None:
                raise StaleError("a question about an unknown stream")
            self._teller.answer(period, self._streams[stream], stream, publish.payload, now)
            return
        if kind == TELL and self._asker is not None:
            self._asker.handle_answer(publish.payload, now)
            return
        topic = period.topic_named(name)
        if topic is None:
            raise StaleError("a topic without a subscription")
        match kind:
            case _ if kind == EVENTS:
                self._subscriber.receive_candidate(period, topic, publish, now)
            case _ if kind == PRESENCE:
                self._subscriber.handle_presence(period, topic, publish.payload, now)
            case _ if kind == REPEATS:
                self._publisher.handle_repeat_request(period, topic, publish.payload, now)
            case _:
                raise MalformedError("not a topic of this mode")

    def _take_held(self, period: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        try:
            self._subscriber.take_candidate(period, topic, payload, now)
        except Exception as error:
            self._refuse(error)

    def _stream_begun(self, period: SessionPeriod, stream: bytes, topic: str, now: int) -> None:
        if self._teller is not None:
            self._streams[stream] = topic
            period.session.subscribe([question_topic(self._config.prefix, stream)], now)

    def _count_excess(self) -> None:
        self.excess += 1


def _check_attributes(config: FoilConfig, keyring: Keyring) -> None:
    """`ConfigError` for an attribute that no topic of the keyring declares, or whose settings make no valid
    generator."""
    schemas = [record.schema for _, record in keyring.records()]
    declared = sorted({domain.attribute for schema in schemas for domain in schema.domains})
    for name in config.attributes:
        if schemas and name not in declared:
            known = ", ".join(declared) or "none"
            raise ConfigError(f"foil.attributes.{name}: no topic of this keyring declares it; declared: {known}")
    for schema in schemas:
        for domain in schema.domains:
            make_generator(domain, config)
            make_dependent(domain, schema, config)


SECRET_BYTES = 32

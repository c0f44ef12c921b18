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
from veilcast.core.timers import earliest
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError, RemoteError, StaleError, VeilcastError
from veilcast.faults import Faults
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


class FoilMember:
    """A `LiveMember` (node.modes), with the notices of `Peers` and `Durable`.

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
        self._config = config
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.version = 0
        self._frames: list[Frame] = []
        self._keeping = PublisherStore(records or {}, config.records_max, config.kept_max, now)
        first_life = self._keeping.secret is None
        secret = self._keeping.secret or Secret(entropy(SECRET_BYTES))
        if first_life:
            self._keeping.store_secret(secret)
        paper = config.profile == "paper"
        self._asking = PositionAsker(config, keyring, self._take_held, rng, entropy) if paper else None
        self._telling = PositionTeller(config, keyring, secret, entropy) if paper else None
        self._chains = TopicChainCache(config.seeds_max)
        chains = self._chains if self._asking is None else self._asking
        self._winnower = Winnower(keyring.root, chains, config.seen_max)
        self._streams: dict[bytes, str] = {}
        """Paper profile: this member's streams that subscribers may ask about, with their topics."""
        self._spans = SessionPeriods(config, keyring, broker, login, secret, first_life, self._ears, rng, now)
        hold = None if self._asking is None else self._asking.hold
        link = keyring.membership.link
        remembering = SubscriberStore(self._keeping, config.seen_max)
        self._reading = FoilSubscriber(
            config, link, self._spans, self._winnower, remembering, hold, self._refuse, first_life, entropy
        )
        seeds = derive_topic_chain if self._telling is None else self._telling
        self._publishing = FoilPublisher(config, self._spans, self._keeping, seeds, self._begun, rng, entropy)
        self._subscribed = 0
        self._open(now)
        self._publishing.resume(now)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Send on every topic that labels the publication, or on none."""
        self._tend(now)
        record = self._publishing.publish(publication, now)
        self._open(now)
        return record

    def withdraw(self, record: int, now: int) -> None:
        self._tend(now)
        self._publishing.withdraw(record, now)

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event reports when the subscription is active."""
        self._tend(now)
        topic, wanted = topic_of(interest)
        self._reading.subscribe(self._subscribed + 1, topic, wanted, now)
        self._subscribed += 1
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        self._tend(now)
        self._reading.unsubscribe(number, now)

    def acknowledge(self, note: bytes, now: int) -> None:
        self._tend(now)
        self._reading.acknowledge(note, now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._tend(now)
        try:
            span = self._spans.period_of_peer(source)
            if span is None:
                raise StaleError("not a session of ours")
            span.session.receive(data, now)
        except RemoteError as error:
            self._refuse(error)
        except Exception as error:
            self.faults.count_exception(error)

    def handle_timer(self, now: int) -> None:
        self._tend(now)
        self._reading.handle(now)
        self._publishing.handle(now)
        if self._asking is not None:
            self._asking.handle(now)

    def next_timer(self) -> int | None:
        asking = None if self._asking is None else self._asking.next_us()
        return earliest(self._spans.next_us(), self._reading.next_us(), self._publishing.next_us(), asking)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._frames += self._spans.frames()
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self._spans.next_event() or self._publishing.next_event() or self._reading.next_event()

    def stored(self, record: int, now: int) -> None:
        self._tend(now)
        self._keeping.stored(record, now)

    def peer_up(self, peer: Address, now: int) -> None:
        self._tend(now)
        if (span := self._spans.period_of_peer(peer)) is not None:
            span.session.peer_up(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._tend(now)
        if (span := self._spans.period_of_peer(peer)) is not None:
            self._frames = [frame for frame in self._frames if frame.destination != peer]
            span.session.peer_lost(now)

    # --- what an owner may want to know

    def group_size(self) -> int:
        """A member knows no other member: its fakes hide it."""
        return 1

    def swaps_played(self) -> int:
        return 0

    def delay(self, now: int) -> Delay | None:
        return self._publishing.delay(now)

    @property
    def excess(self) -> int:
        return self._reading.excess

    def counts(self) -> dict[str, int]:
        """Candidates that arrived and were not delivered, by reason: fakes, duplicates, deliveries for decoys only."""
        return dict(sorted(self._winnower.counts.items()))

    def refusals(self) -> dict[str, int]:
        """Refusals of the broker, and reasons why its stream was given up, with their counts."""
        total = sum((span.session.refusals for span in self._spans), Counter[str]())
        return {why: count for why, count in sorted(total.items()) if count}

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "sessions": len(self._spans),
            "unacknowledged": max((len(span.session) for span in self._spans), default=0),
            "pending": self._keeping.pending_count,
            "kept": len(self._keeping),
            "sending": len(self._publishing),
            "requests": self._publishing.request_count,
            "chains": len(self._chains) if self._asking is None else self._asking.chains,
            "held": 0 if self._asking is None else len(self._asking),
            **self._reading.sizes(),
        }

    # --- inside

    def _tend(self, now: int) -> None:
        """Sessions begin and end with time, on every call."""
        self.version += 1
        for number in self._spans.handle(now):
            self._reading.period_ended(number)
            self._publishing.period_ended(number, now)
        self._open(now)

    def _open(self, now: int) -> None:
        opened, self._spans.newly_opened = self._spans.newly_opened, []
        for span in opened:
            self._reading.period_opened(span, now)
            self._publishing.period_opened(span, now)
            if self._asking is not None:
                span.session.subscribe([self._asking.filter], now)

    def _ears(self, span: SessionPeriod) -> SessionCallbacks:
        def heard(publish: PublishPacket, now: int) -> None:
            self._hear(span, publish, now)

        def ready(now: int) -> None:
            self._reading.session_ready(span, now)
            self._publishing.session_ready(span, now)

        def lost(now: int) -> None:
            self._reading.session_lost(span, now)
            self._publishing.session_lost(span, now)

        return SessionCallbacks(heard, ready, self._reading_stands, lost)

    def _reading_stands(self, now: int) -> None:
        self._reading.filters_granted(now)

    def _hear(self, span: SessionPeriod, publish: PublishPacket, now: int) -> None:
        """The message has been acknowledged already, and the stream stays up in any case."""
        try:
            self._sort(span, publish, now)
        except Exception as error:  # A `LocalError` here: a grant of ours has ended.
            self._refuse(error)

    def _sort(self, span: SessionPeriod, publish: PublishPacket, now: int) -> None:
        prefix, kind, name = [*publish.topic.split("/", 3), "", "", ""][:3]
        if prefix != self._config.prefix:
            raise MalformedError("not a topic of ours")
        if kind == ASK and self._telling is not None:
            stream = next((stream for stream in self._streams if question_topic(prefix, stream) == publish.topic), None)
            if stream is None:
                raise StaleError("a question about a stream that is not ours")
            self._telling.answer(span, self._streams[stream], stream, publish.payload, now)
            return
        if kind == TELL and self._asking is not None:
            self._asking.handle_answer(publish.payload, now)
            return
        topic = span.topic_named(name)
        if topic is None:
            raise StaleError("a topic that we did not ask for")
        match kind:
            case _ if kind == EVENTS:
                self._reading.receive_candidate(span, topic, publish, now)
            case _ if kind == PRESENCE:
                self._reading.handle_presence(span, topic, publish.payload, now)
            case _ if kind == REPEATS:
                self._publishing.handle_repeat_request(span, topic, publish.payload, now)
            case _:
                raise MalformedError("not a topic of ours")

    def _take_held(self, span: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        try:
            self._reading.take_candidate(span, topic, payload, now)
        except Exception as error:
            self._refuse(error)

    def _begun(self, span: SessionPeriod, stream: bytes, topic: str, now: int) -> None:
        if self._telling is not None:
            self._streams[stream] = topic
            span.session.subscribe([question_topic(self._config.prefix, stream)], now)

    def _refuse(self, error: Exception) -> None:
        if not isinstance(error, VeilcastError):
            self.faults.count_exception(error)
        self.refused[type(error).__name__] += 1


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

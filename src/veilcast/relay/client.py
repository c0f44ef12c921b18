"""The client: a member that publishes and subscribes through proxies. The proxies know the member; the server does not.

The client stores only its publications (`core.outbox`). Each publication is written to disk, leaves once it is durable,
and is sent again until the server has stored it. After a restart the client announces its subscriptions again, under
the same lease names. The client acknowledges a delivery to the server when the owner has acknowledged the notification.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from random import Random

from veilcast.authority.keyring import Keyring
from veilcast.core.inbox import Inbox
from veilcast.core.outbox import Outbox, PendingPublication, publication_id
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.group import Multiply, Scalar, multiply_each
from veilcast.errors import LocalError, MalformedError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.machine import Address, Delay, Disconnect, Entropy, Event, Frame, Interest, Note, Overdue, Publication
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.enrolment import ServerPublic
from veilcast.relay.hardened import HardenedClientProfile
from veilcast.relay.leases import SubscriptionLeases
from veilcast.relay.pacer import make_pacer, unpack_frame
from veilcast.relay.paper import PaperClientProfile
from veilcast.relay.profile import ClientProfile
from veilcast.relay.proxy_connection import ProxyConnection
from veilcast.topics import check_interest, check_publication, topic_of, topics_of
from veilcast.wire import decode, encode
from veilcast.wire.mesh import Message
from veilcast.wire.relay import Receipt, RelayDelivery, ReplyCode, RequestReply


class RelayClient:
    """A `LiveMember` (node.modes), with the notices of `Peers` and `Durable`.

    `proxies` has one or two entries: the client publishes through the first and subscribes through the last. `records`
    holds the records that earlier runs stored and did not settle: publications. `refused` counts rejected input by
    error class; `excess` counts deliveries that no subscription had asked for.
    """

    def __init__(
        self,
        config: RelayClientConfig,
        keyring: Keyring,
        server: ServerPublic,
        proxies: Sequence[Address],
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = multiply_each,
    ) -> None:
        if not 1 <= len(proxies) <= 2:
            raise LocalError("a client has one proxy, or one to publish by and one to subscribe by")
        self._config = config
        hardened = config.profile == "hardened"
        self._part: ClientProfile = (
            HardenedClientProfile(keyring, server, entropy, multiply)
            if hardened
            else PaperClientProfile(keyring, entropy)
        )
        self._frames: list[Frame] = []
        self._pacer = make_pacer(config, rng)
        self._ways = {
            proxy: ProxyConnection(config, self._part, server, proxy, self._post, rng, entropy, now)
            for proxy in dict.fromkeys(proxies)
        }
        self._out, self._in = self._ways[proxies[0]], self._ways[proxies[-1]]
        self._leasing = SubscriptionLeases(config, self._part, self._in, rng, now)
        self._inbox = Inbox(unread_max=config.unread_max, seen_max=config.seen_max, again_us=config.deliver_again_us)
        self._records = Outbox(entropy, records or {}, config.records_max)
        self._submissions: dict[int, dict[int, None]] = {}
        """Request numbers of each durable publication that the server has not confirmed, by record."""
        self._overdue: Timers[int] = Timers()
        self._letters: dict[int, PendingPublication] = {}
        self._events: deque[Event] = deque()
        self._subscribed = 0
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.excess = 0
        self.version = 0
        for record, letter in self._records.unsettled():
            self._submit(record, letter, now)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Send on every topic that labels the publication, or on none."""
        span = self._part.lease_periods(now, 0)[0]
        letters = []
        keys_of = {topic: self._part.topic_keys(topic, span, now) for topic in topics_of(publication)}
        check_publication(publication, {topic: keys.record.schema for topic, keys in keys_of.items()})
        for topic, keys in keys_of.items():
            letter = self._records.draft(topic, None, publication)
            self._part.check_publication(keys, letter)
            letters.append(letter)
        self.version += 1
        return self._records.keep(letters)

    def withdraw(self, record: int, now: int) -> None:
        for number in self._submissions.pop(record, {}):
            self._out.cancel(number, now)
        self._through(record)
        self._records.drop(record)

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event reports when the subscription is active."""
        topic, wanted = topic_of(interest)
        keys = self._part.topic_keys(topic, self._part.lease_periods(now, 0)[0], now)
        check_interest(wanted, topic, keys.record.schema)
        self._leasing.add(self._subscribed + 1, topic, wanted, now)
        self._subscribed += 1
        self.version += 1
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        self._leasing.remove(number, now)
        self._give(self._inbox.end_subscription(number), now)
        self.version += 1

    def acknowledge(self, note: bytes, now: int) -> None:
        self._give(self._inbox.acknowledge(note), now)
        self.version += 1

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        try:
            way = self._ways.get(source)
            if way is None:
                raise StaleError("not a proxy of ours")
            for each in unpack_frame(self._pacer, data, source, lambda: self._leave(source, now)):
                self._hear(decode(each), way, now)
        except RemoteError as error:
            self.refused[type(error).__name__] += 1
        except Exception as error:
            self.faults.count_exception(error)

    def handle_timer(self, now: int) -> None:
        if self._pacer is not None:
            self._frames += self._pacer.handle(now)
        for way in self._ways.values():
            way.handle(now)
        self._leasing.handle(now)
        self._inbox.handle(now)
        for record in self._overdue.pop_due(now):
            self._overdue.set(record, now + self._config.wait_us)
            self._events.append(Overdue(record, self._letters[record].content.publication))
        self.version += 1

    def next_timer(self) -> int | None:
        ways = (way.next_us() for way in self._ways.values())
        paced = None if self._pacer is None else self._pacer.next_us()
        return earliest(paced, *ways, self._leasing.next_us(), self._inbox.next_us(), self._overdue.next_us())

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        if self._leasing.notices:
            return self._leasing.notices.pop(0)
        for way in self._ways.values():
            if (event := way.next_event()) is not None:
                return event
        return self._records.next_event() or self._inbox.next_delivery()

    def stored(self, record: int, now: int) -> None:
        for letter in self._records.stored(record):
            self._submit(record, letter, now)

    def peer_up(self, peer: Address, now: int) -> None:
        if (way := self._ways.get(peer)) is not None:
            if self._pacer is not None:
                self._pacer.stream_up(peer, now)
            way.peer_up(now)
            if way is self._in:
                self._leasing.proxy_returned(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if (way := self._ways.get(peer)) is not None:
            if self._pacer is not None:
                self._pacer.stream_down(peer)
            way.peer_lost(now)

    # --- what an owner may want to know

    def group_size(self) -> int:
        """A client knows no other member."""
        return 1

    def swaps_played(self) -> int:
        return 0

    def refusals(self) -> dict[ReplyCode, int]:
        """Requests that the relay has refused and that the client still repeats, by reason."""
        standing = sum((way.refused_requests for way in self._ways.values()), Counter[ReplyCode]())
        return {code: count for code, count in sorted(standing.items()) if count}

    def silent_us(self, now: int) -> int:
        """How long the relay has owed an answer while its proxy is up, in microseconds; 0 within the usual time."""
        return max(way.silent_us(now) for way in self._ways.values())

    def delay(self, now: int) -> Delay | None:
        return self._out.delay(now) if len(self._records) else None

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "requests": sum(map(len, self._ways.values())),
            "subscriptions": len(self._leasing),
            "leases": self._leasing.lease_count,
            "inbox": len(self._inbox),
            "seen": self._inbox.seen_count,
            "pending": len(self._records),
            "backlog": 0 if self._pacer is None else len(self._pacer),
        }

    # --- inside

    def _submit(self, record: int, letter: PendingPublication, now: int) -> None:
        def build(number: int, key: Scalar, now: int) -> Message:
            span = self._part.lease_periods(now, 0)[0]
            return self._part.build_submit(number, span, self._part.topic_keys(letter.topic, span, now), letter, key)

        def done(now: int) -> None:
            left = self._submissions.get(record, {})
            left.pop(number, None)
            self._records.settle(record, letter)
            if not left:
                self._through(record)

        self._letters[record] = letter
        if record not in self._overdue:
            self._overdue.set(record, now + self._config.wait_us)
        number = self._out.request(now, build, done, proof=self._part.submit_proof(letter))
        self._submissions.setdefault(record, {})[number] = None

    def _through(self, record: int) -> None:
        self._submissions.pop(record, None)
        self._letters.pop(record, None)
        self._overdue.cancel(record)

    def _leave(self, proxy: Address, now: int) -> None:
        self._events.append(Disconnect(proxy))
        self.peer_lost(proxy, now)

    def _hear(self, message: Message, way: ProxyConnection, now: int) -> None:
        match message:
            case RequestReply():
                way.handle_reply(message, now)
            case RelayDelivery():
                self._deliver(message, way, now)
            case _:
                raise MalformedError("not for a client")

    def _deliver(self, delivery: RelayDelivery, way: ProxyConnection, now: int) -> None:
        if way.key is None:
            return  # Under a key of another life: the server sends it again when we ask.
        name = delivery.names[0]
        stub = (name, delivery.ticket)
        terms = self._leasing.leases_named(name)
        if not terms:
            self._give([stub], now)
            return
        try:
            with self.faults.refuse_exceptions():
                letter = self._part.open_delivery(delivery, terms[0].interest.topic, terms[0].period, way.key, now)
                publication = letter.content.publication
                readers = [
                    n for term in terms if term.interest.interest.matches(publication) for n in term.interest.numbers
                ]
                note = Note(publication_id(letter), publication)
        except RemoteError:
            self._give([stub], now)
            raise
        self.excess += not readers
        if self._inbox.put(readers, note, stub, now):
            self._give([stub], now)

    def _give(self, stubs: Sequence[tuple[bytes, bytes]], now: int) -> None:
        for name, ticket in stubs:
            self._in.send_if_up(Receipt(name, ticket), now)

    def _post(self, peer: Address, message: Message, now: int) -> None:
        data = encode(message)
        if self._pacer is None:
            self._frames.append(Frame(peer, data))
        else:
            self._pacer.put(peer, data)

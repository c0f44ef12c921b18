"""An overlay of one virtual node in memory, for client tests: three stub replicas that do what an edge node would, as
simply as possible, or what a test tells them; with its own clock.

The stubs forward advertisements to subscribers, a first share as the last one, and contents to all subscribers; they
send `Done` when all of these have. A stub can be told to send anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from heapq import heappop, heappush
from typing import Any

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys.redistribution import PublisherShare, accept_publisher_share
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, sign_overlay
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.brokers.routing.claims import check_advertisement, check_bring, check_subscription, check_withdraw
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Delivered, Disconnect, Event, Publication, Record, Settled, Waiting
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.rng import SeededEntropy, derive_bytes, derive_rng
from veilcast.topics import Conjunction, Integers, Label, Schema, Strings
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    BringClaim,
    Claim,
    ClaimKind,
    ConfirmContent,
    FirstShare,
    ForwardContent,
    LastShare,
    RequestBlocks,
    WantKey,
    WithdrawClaim,
)

SECOND = 1_000_000
TOPIC = "news/eu"
OTHER = "news/us"
SCHEMA = Schema((Integers("level", 0, 15, 4), Strings("kind")))
EPOCH_US = 60 * SECOND
OPERATOR = SigningKey(Secret(b"o" * 32))
QUICK = BrokerClientConfig(
    spread_us=SECOND // 5, ahead_us=10 * SECOND, connect_us=SECOND // 2, again_us=2 * SECOND, want_us=SECOND // 2
)


def signing(number: int) -> SigningKey:
    return SigningKey(Secret(derive_bytes(number, "replica")))


@cache
def overlay(size: int = 3) -> SignedOverlay:
    replicas = tuple(Replica(signing(number).public, f"r{number}", f"r{number}") for number in range(1, size + 1))
    return sign_overlay(BrokerOverlay(0, (NodeEntry("edge", 0, replicas),)), OPERATOR)


def keyring(number: int, profile: Profile, role: str = "publisher", epoch_us: int = EPOCH_US) -> Keyring:
    records = tuple(TopicRecord(topic, SCHEMA, profile=profile) for topic in (TOPIC, OTHER))
    wanted = () if role == "nobody" else ((TOPIC, role), (OTHER, role))
    return make_keyring(records, epoch_us, wanted, number)


@dataclass
class ClientSlot:
    """A client, and its disk."""

    machine: BrokerClient
    number: int
    role: str
    disk: dict[int, bytes] = field(default_factory=dict)
    life: int = 0
    alarm: int | None = None


class EdgeNodeStub:
    """`heard` lists the deliveries: (client, subscription, body), in order. Applications acknowledge while `prompt`."""

    def __init__(self, profile: Profile = "hardened", config: BrokerClientConfig = QUICK, size: int = 3) -> None:
        self.profile: Profile = profile
        self.config = msgspec.structs.replace(config, profile=profile)
        self.now, self.prompt, self._count = START_US, True, 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self.posts: dict[str, ClientSlot] = {}
        self.heard: list[tuple[str, int, bytes]] = []
        self.events: list[tuple[str, Event]] = []
        self._size = size
        self.replicas: dict[str, StubReplica] = {f"r{index}": StubReplica(self, index) for index in range(1, size + 1)}

    # --- what a test does

    def client(self, name: str, role: str = "publisher") -> BrokerClient:
        post = ClientSlot(None, len(self.posts), role)  # type: ignore[arg-type]
        self.posts[name] = post
        self.start(name)
        return post.machine

    def start(self, name: str) -> None:
        post = self.posts[name]
        for replica in self.replicas.values():
            replica.queues.peer_lost(Address(name))
        post.machine = BrokerClient(
            self.config,
            keyring(post.number, self.profile, post.role),
            overlay(self._size),
            OPERATOR.public,
            "edge",
            Address(name),
            derive_rng(post.life, "client", name),
            SeededEntropy(derive_bytes(post.life, "client", name)),
            self.now,
            dict(post.disk),
        )
        post.life += 1
        self.poll(Address(name))

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND)
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heappop(self._queue)
            act()
        self.now = end

    def subscribe(self, name: str, interest: Conjunction = Label(TOPIC)) -> int:  # noqa: B008 - frozen
        number = self.posts[name].machine.subscribe(interest, self.now)
        self.poll(Address(name))
        return number

    def publish(self, name: str, body: bytes, topics: tuple[str, ...] = (TOPIC,), **pairs: Any) -> int:
        labels = tuple(Label(topic).pair for topic in topics)
        record = self.posts[name].machine.publish(Publication((*labels, *pairs.items()), body), self.now)
        self.poll(Address(name))
        return record

    def act(self, name: str, do: Callable[[BrokerClient], Any]) -> Any:
        result = do(self.posts[name].machine)
        self.poll(Address(name))
        return result

    def heard_by(self, name: str) -> list[bytes]:
        return [body for client, _, body in self.heard if client == name]

    def waiting(self, name: str) -> list[Waiting]:
        return [event for client, event in self.events if client == name and isinstance(event, Waiting)]

    # --- the driver

    def after(self, us: int, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + us, self._count, act))

    def poll(self, name: Address) -> None:
        """Do what a driver does after every call."""
        post = self.posts[name]
        for frame in post.machine.frames_to_send(self.now, 1 << 20):
            self.after(LATENCY_US, partial(self.replicas[frame.destination].receive, frame.data, name))
        while (event := post.machine.next_event()) is not None:
            self._event(name, post, event)
        timer = post.machine.next_timer()
        if timer is not None and (post.alarm is None or timer < post.alarm):
            post.alarm = timer
            life = post.life
            self.after(max(0, timer - self.now), lambda: self._ring(name, life))

    def _ring(self, name: Address, life: int) -> None:
        post = self.posts[name]
        post.alarm = None
        if post.life == life:
            post.machine.handle_timer(self.now)
        self.poll(name)

    def _event(self, name: Address, post: ClientSlot, event: Event) -> None:
        self.events.append((name, event))
        machine = post.machine
        match event:
            case Connect(peer):
                self.after(LATENCY_US, lambda: self._connect(name, peer, machine))
            case Disconnect(peer):
                self.replicas[peer].queues.peer_lost(name)
            case Record(record, data):
                post.disk[record] = data
                self.after(100, lambda: self._stored(name, record, machine))
            case Settled(record):
                post.disk.pop(record, None)
            case Delivered(number, note):
                self.heard.append((name, number, note.publication.body))
                if self.prompt:
                    self.after(0, lambda: self._acknowledge(name, note.id, machine))

    def _acknowledge(self, name: Address, note: bytes, machine: BrokerClient) -> None:
        machine.acknowledge(note, self.now)
        self.poll(name)

    def _stored(self, name: Address, record: int, machine: BrokerClient) -> None:
        if self.posts[name].machine is machine:
            machine.stored(record, self.now)
            self.poll(name)

    def _connect(self, name: Address, peer: Address, machine: BrokerClient) -> None:
        if self.posts[name].machine is not machine:
            return
        if self.replicas[peer].away:
            machine.peer_lost(peer, self.now)
        else:
            machine.peer_up(peer, self.now)
            self.replicas[peer].queues.peer_up(name)
            self.replicas[peer].flush()
        self.poll(name)

    def arrive(self, peer: Address, name: Address, data: bytes) -> None:
        def act() -> None:
            self.posts[name].machine.receive(data, peer, self.now)
            self.poll(name)

        self.after(LATENCY_US, act)


class StubReplica:
    """One replica. `rewrite` replaces its outgoing messages; an empty list withholds them."""

    def __init__(self, world: EdgeNodeStub, index: int) -> None:
        self._world, self.index, self.name = world, index, Address(f"r{index}")
        entry = overlay(world._size).verify(OPERATOR.public).node("edge")
        self.place = ReplicaId(entry.scheme, index)
        self.away = False
        self.rewrite: Callable[[Message, Address], list[Message]] = lambda message, to: [message]
        self.said: list[tuple[Address, Message]] = []
        """All messages from clients."""
        self.start()

    def start(self) -> None:
        """Start without any state."""
        self.language: Any = predicate_codec(self._world.profile)
        self.queues = PeerQueues(
            256, 8192, 1 << 26, SeededEntropy(derive_bytes(len(getattr(self, "said", ())), self.name))
        )
        self.adverts: dict[bytes, tuple[Claim, Address]] = {}
        self.wants: dict[bytes, tuple[Claim, Address]] = {}
        self.told: dict[tuple[Address, bytes], None] = {}
        self.open: dict[bytes, tuple[ForwardContent, dict[Address, None]]] = {}

    def send(self, to: Address, message: Message) -> None:
        for each in self.rewrite(message, to):
            self.queues.put(to, each)
        self.flush()

    def send_raw(self, to: str, message: Message) -> None:
        self.queues.put(Address(to), message)
        self.flush()

    def flush(self) -> None:
        for frame in self.queues.frames(self._world.now, 1 << 20):
            self._world.arrive(self.name, frame.destination, frame.data)

    def receive(self, data: bytes, source: Address) -> None:
        if self.away:
            return
        message = self.queues.receive(data, source, self._world.now)
        self.queues.handle(self._world.now + SECOND)
        while self.queues.restarted:
            peer = self.queues.restarted.popleft()
            self.told = {key: None for key in self.told if key[0] != peer}
        if message is not None:
            if isinstance(message, BringClaim):
                check_bring(message, signing(self.index).public)
                message = message.claim
            self.said.append((source, message))
            self._hear(message, source)
        self.flush()

    def received(self, kind: type[Any], name: str | None = None) -> list[Any]:
        """Messages of this kind from clients."""
        return [message for source, message in self.said if isinstance(message, kind) and name in (None, source)]

    def _hear(self, message: Message, source: Address) -> None:
        match message:
            case Claim(kind=ClaimKind.ADVERTISEMENT):
                check_advertisement(message, keyring(0, self._world.profile).root)
                self.adverts[message.id] = (message, source)
                self._tell()
            case Claim():
                self.wants[message.id] = (message, source)
                self._tell()
            case WithdrawClaim():
                if message.claim in self.wants:
                    check_withdraw(message, self.wants.pop(message.claim)[0])
            case FirstShare():
                self._pass(message, source)
            case ForwardContent():
                self._carry(message, source)
            case ConfirmContent():
                if message.content in self.open:
                    self.open[message.content][1].pop(source, None)
                    self._done(message.content)
            case WantKey() if message.advertisement in self.adverts:
                self.send(self.adverts[message.advertisement][1], message)
            case RequestBlocks() if message.content in self.open:
                self.send(source, self.open[message.content][0])

    def _tell(self) -> None:
        """Send each subscriber all advertisements that its proofs match."""
        for id_, (advert, _) in self.adverts.items():
            for reader in self._readers(advert):
                if (reader, id_) not in self.told:
                    self.told[reader, id_] = None
                    self.send(reader, advert)

    def _readers(self, advert: Claim) -> list[Address]:
        return list(dict.fromkeys(source for claim, source in self.wants.values() if self._fits(claim, advert)))

    def _fits(self, claim: Claim, advert: Claim) -> bool:
        assert advert.reader is not None
        try:
            check_subscription(claim, advert.reader)
        except RemoteError:
            return False
        words = self.language
        return bool(words.overlaps(words.decode_advertisement(advert), words.decode_subscription(claim)))

    def _pass(self, first: FirstShare, source: Address) -> None:
        advert, publisher = self.adverts[first.advertisement]
        share = first.share
        if self._world.profile == "hardened":
            assert advert.chain is not None
            holding = accept_publisher_share(PublisherShare.decode(share), self.place, advert.chain.leaf.subject)
            share = holding.make_delivery().encode().reveal()
        for reader in self._readers(advert):
            if reader != publisher:
                self.send(reader, LastShare(first.advertisement, share))

    def _carry(self, carry: ForwardContent, source: Address) -> None:
        advert, publisher = self.adverts[carry.routing.advertisement]
        words, says = self.language, self.language.decode_publication(carry.routing.says)
        wanting = {
            reader: None
            for claim, reader in self.wants.values()
            if reader != publisher
            and self._fits(claim, advert)
            and words.matches(says, words.decode_subscription(claim))
        }
        if carry.block is None and carry.routing.content not in self.open:
            self.send(source, RequestBlocks(carry.routing.content, (1,)))
            return
        kept = self.open.get(carry.routing.content, (carry, {}))[0]
        full = kept if carry.block is None else carry
        self.open[carry.routing.content] = (msgspec.structs.replace(full, attempt=carry.attempt), wanting)
        for reader in wanting:
            self.send(reader, self.open[carry.routing.content][0])
        self._done(carry.routing.content)

    def _done(self, content: bytes) -> None:
        carry, wanting = self.open[content]
        if not wanting:
            self.send(self.adverts[carry.routing.advertisement][1], ConfirmContent(content, carry.attempt))


LATENCY_US = 5_000

"""An overlay of one virtual node in memory, for tests of clients: three replicas that are no brokers, but do what those
of an edge node would, as simply as can be, or what a test tells them; and a clock of its own.

Replicas pass adverts to readers, a first share as the last one, and contents to whoever subscribed; they say `Done`
when all of these have. `Liar`s can be told to say anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from heapq import heappop, heappush
from typing import Any

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.record import Profile, TopicRecord
from veilcast.brokers.claims import check_advertisement, check_bring, check_subscription, check_withdraw
from veilcast.brokers.client import Client
from veilcast.brokers.config import ClientConfig
from veilcast.brokers.language import language_of
from veilcast.brokers.overlay import NodeEntry, Overlay, Replica, SignedOverlay, sign_overlay
from veilcast.brokers.queues import Queues
from veilcast.brokers.sharing.redistribution import First, take_first
from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Delivered, Disconnect, Event, Publication, Record, Settled, Waiting
from veilcast.sim.chance import SeededEntropy, derive, generator
from veilcast.sim.engine import START_US
from veilcast.sim.mesh_keys import keyring_of
from veilcast.topics import Conjunction, Integers, Label, Schema, Strings
from veilcast.wire.brokers import (
    Bring,
    Carry,
    Claim,
    ClaimKind,
    Done,
    FirstShare,
    LastShare,
    Missing,
    WantKey,
    Withdraw,
)
from veilcast.wire.messages import Message

SECOND = 1_000_000
TOPIC = "news/eu"
OTHER = "news/us"
SCHEMA = Schema((Integers("level", 0, 15, 4), Strings("kind")))
EPOCH_US = 60 * SECOND
OPERATOR = SigningKey(Secret(b"o" * 32))
QUICK = ClientConfig(
    spread_us=SECOND // 5, ahead_us=10 * SECOND, connect_us=SECOND // 2, again_us=2 * SECOND, want_us=SECOND // 2
)


def signing(number: int) -> SigningKey:
    return SigningKey(Secret(derive(number, "replica")))


@cache
def overlay(size: int = 3) -> SignedOverlay:
    replicas = tuple(Replica(signing(number).public, f"r{number}", f"r{number}") for number in range(1, size + 1))
    return sign_overlay(Overlay(0, (NodeEntry("edge", 0, replicas),)), OPERATOR)


def keyring(number: int, profile: Profile, role: str = "publisher", epoch_us: int = EPOCH_US) -> Keyring:
    records = tuple(TopicRecord(topic, SCHEMA, profile=profile) for topic in (TOPIC, OTHER))
    wanted = () if role == "nobody" else ((TOPIC, role), (OTHER, role))
    return keyring_of(records, epoch_us, wanted, number)


@dataclass
class Post:
    """A client, and what is on its disk."""

    machine: Client
    number: int
    role: str
    disk: dict[int, bytes] = field(default_factory=dict)
    life: int = 0
    alarm: int | None = None


class OneNode:
    """`heard` has what was delivered: (client, subscription, body), in order. Owners acknowledge while `prompt`."""

    def __init__(self, profile: Profile = "hardened", config: ClientConfig = QUICK, size: int = 3) -> None:
        self.profile: Profile = profile
        self.config = msgspec.structs.replace(config, profile=profile)
        self.now, self.prompt, self._count = START_US, True, 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self.posts: dict[str, Post] = {}
        self.heard: list[tuple[str, int, bytes]] = []
        self.events: list[tuple[str, Event]] = []
        self._size = size
        self.replicas: dict[str, Copy] = {f"r{index}": Copy(self, index) for index in range(1, size + 1)}

    # --- what a test does

    def client(self, name: str, role: str = "publisher") -> Client:
        post = Post(None, len(self.posts), role)  # type: ignore[arg-type]
        self.posts[name] = post
        self.start(name)
        return post.machine

    def start(self, name: str) -> None:
        post = self.posts[name]
        for replica in self.replicas.values():
            replica.queues.peer_lost(Address(name))
        post.machine = Client(
            self.config,
            keyring(post.number, self.profile, post.role),
            overlay(self._size),
            OPERATOR.public,
            "edge",
            Address(name),
            generator(post.life, "client", name),
            SeededEntropy(derive(post.life, "client", name)),
            self.now,
            dict(post.disk),
        )
        post.life += 1
        self.look(Address(name))

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND)
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heappop(self._queue)
            act()
        self.now = end

    def subscribe(self, name: str, interest: Conjunction = Label(TOPIC)) -> int:  # noqa: B008 - frozen
        number = self.posts[name].machine.subscribe(interest, self.now)
        self.look(Address(name))
        return number

    def publish(self, name: str, body: bytes, topics: tuple[str, ...] = (TOPIC,), **pairs: Any) -> int:
        labels = tuple(Label(topic).pair for topic in topics)
        record = self.posts[name].machine.publish(Publication((*labels, *pairs.items()), body), self.now)
        self.look(Address(name))
        return record

    def act(self, name: str, do: Callable[[Client], Any]) -> Any:
        result = do(self.posts[name].machine)
        self.look(Address(name))
        return result

    def heard_by(self, name: str) -> list[bytes]:
        return [body for client, _, body in self.heard if client == name]

    def waiting(self, name: str) -> list[Waiting]:
        return [event for client, event in self.events if client == name and isinstance(event, Waiting)]

    # --- the driver

    def after(self, us: int, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + us, self._count, act))

    def look(self, name: Address) -> None:
        """What a driver does after every call."""
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
        self.look(name)

    def _event(self, name: Address, post: Post, event: Event) -> None:
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

    def _acknowledge(self, name: Address, note: bytes, machine: Client) -> None:
        machine.acknowledge(note, self.now)
        self.look(name)

    def _stored(self, name: Address, record: int, machine: Client) -> None:
        if self.posts[name].machine is machine:
            machine.stored(record, self.now)
            self.look(name)

    def _connect(self, name: Address, peer: Address, machine: Client) -> None:
        if self.posts[name].machine is not machine:
            return
        if self.replicas[peer].away:
            machine.peer_lost(peer, self.now)
        else:
            machine.peer_up(peer, self.now)
            self.replicas[peer].queues.peer_up(name)
            self.replicas[peer].flush()
        self.look(name)

    def arrive(self, peer: Address, name: Address, data: bytes) -> None:
        def act() -> None:
            self.posts[name].machine.receive(data, peer, self.now)
            self.look(name)

        self.after(LATENCY_US, act)


class Copy:
    """One replica. `rewrite` is what becomes of what it says; an empty list keeps it back."""

    def __init__(self, world: OneNode, index: int) -> None:
        self._world, self.index, self.name = world, index, Address(f"r{index}")
        entry = overlay(world._size).verify(OPERATOR.public).node("edge")
        self.place = Place(entry.scheme, index)
        self.away = False
        self.rewrite: Callable[[Message, Address], list[Message]] = lambda message, to: [message]
        self.said: list[tuple[Address, Message]] = []
        """All that clients said to it."""
        self.start()

    def start(self) -> None:
        """As if it had just come: it knows nothing."""
        self.language: Any = language_of(self._world.profile)
        self.queues = Queues(256, 8192, 1 << 26, SeededEntropy(derive(len(getattr(self, "said", ())), self.name)))
        self.adverts: dict[bytes, tuple[Claim, Address]] = {}
        self.wants: dict[bytes, tuple[Claim, Address]] = {}
        self.told: dict[tuple[Address, bytes], None] = {}
        self.open: dict[bytes, tuple[Carry, dict[Address, None]]] = {}

    def say(self, to: Address, message: Message) -> None:
        for each in self.rewrite(message, to):
            self.queues.put(to, each)
        self.flush()

    def lie(self, to: str, message: Message) -> None:
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
        while self.queues.anew:
            peer = self.queues.anew.popleft()
            self.told = {key: None for key in self.told if key[0] != peer}
        if message is not None:
            if isinstance(message, Bring):
                check_bring(message, signing(self.index).public)
                message = message.claim
            self.said.append((source, message))
            self._hear(message, source)
        self.flush()

    def of(self, kind: type[Any], name: str | None = None) -> list[Any]:
        """What clients said of this kind."""
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
            case Withdraw():
                if message.claim in self.wants:
                    check_withdraw(message, self.wants.pop(message.claim)[0])
            case FirstShare():
                self._pass(message, source)
            case Carry():
                self._carry(message, source)
            case Done():
                if message.content in self.open:
                    self.open[message.content][1].pop(source, None)
                    self._done(message.content)
            case WantKey() if message.advertisement in self.adverts:
                self.say(self.adverts[message.advertisement][1], message)
            case Missing() if message.content in self.open:
                self.say(source, self.open[message.content][0])

    def _tell(self) -> None:
        """Each reader of all adverts that its proofs fit."""
        for id_, (advert, _) in self.adverts.items():
            for reader in self._readers(advert):
                if (reader, id_) not in self.told:
                    self.told[reader, id_] = None
                    self.say(reader, advert)

    def _readers(self, advert: Claim) -> list[Address]:
        return list(dict.fromkeys(source for claim, source in self.wants.values() if self._fits(claim, advert)))

    def _fits(self, claim: Claim, advert: Claim) -> bool:
        assert advert.reader is not None
        try:
            check_subscription(claim, advert.reader)
        except RemoteError:
            return False
        words = self.language
        return bool(words.overlaps(words.read_advertisement(advert), words.read_subscription(claim)))

    def _pass(self, first: FirstShare, source: Address) -> None:
        advert, publisher = self.adverts[first.advertisement]
        share = first.share
        if self._world.profile == "hardened":
            assert advert.chain is not None
            holding = take_first(First.decode(share), self.place, advert.chain.leaf.subject)
            share = holding.delivery().encode().reveal()
        for reader in self._readers(advert):
            if reader != publisher:
                self.say(reader, LastShare(first.advertisement, share))

    def _carry(self, carry: Carry, source: Address) -> None:
        advert, publisher = self.adverts[carry.routing.advertisement]
        words, says = self.language, self.language.read_says(carry.routing.says)
        wanting = {
            reader: None
            for claim, reader in self.wants.values()
            if reader != publisher and self._fits(claim, advert) and words.matches(says, words.read_subscription(claim))
        }
        if carry.block is None and carry.routing.content not in self.open:
            self.say(source, Missing(carry.routing.content, (1,)))
            return
        kept = self.open.get(carry.routing.content, (carry, {}))[0]
        full = kept if carry.block is None else carry
        self.open[carry.routing.content] = (msgspec.structs.replace(full, attempt=carry.attempt), wanting)
        for reader in wanting:
            self.say(reader, self.open[carry.routing.content][0])
        self._done(carry.routing.content)

    def _done(self, content: bytes) -> None:
        carry, wanting = self.open[content]
        if not wanting:
            self.say(self.adverts[carry.routing.advertisement][1], Done(content, carry.attempt))


LATENCY_US = 5_000

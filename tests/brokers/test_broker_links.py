"""Permissions and rate limits at a broker: strangers, flooding clients, foreign claims."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import broker_keyrings
from support.broker_keyrings import EPOCH, EPOCH_US, OPERATOR, OTHER, START, TOPIC, keys_of
from support.message_strategies import messages, with_garbage
from veilcast.authority.topic_record import Profile
from veilcast.brokers.broker import Broker
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.content import blocks
from veilcast.brokers.content.blocks import Strategy, encode_content
from veilcast.brokers.keys.scheme import Scheme
from veilcast.brokers.overlay import node_id
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.brokers.routing import claims
from veilcast.brokers.routing.claim_semantics import predicate_codec, topic_tag
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError
from veilcast.machine import Address, Connect, Disconnect, Event, Listen, Publication
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.topics import TOPIC as TOPIC_LABEL
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    BringClaim,
    Claim,
    ConfirmContent,
    CopyRouting,
    DisputeDealing,
    FirstShare,
    ForwardContent,
    NextShare,
    Routing,
    RoutingCopied,
    SessionItem,
    ShareReceived,
)
from veilcast.wire.brokers import FloodKind as WhichFlood
from veilcast.wire.geometry import ITEM_MAX


class Bench:
    """One broker of B2, replica 1, with the peers that a test connects."""

    def __init__(self, profile: Profile = "hardened", **settings: int) -> None:
        self.config = BrokerConfig(profile=profile, **settings)  # type: ignore[arg-type]
        self.broker = Broker(
            self.config,
            broker_keyrings.signed_overlay(),
            OPERATOR.public,
            Address("B2.1"),
            broker_keyrings.signing("B2", 1),
            broker_keyrings.root(profile),
            EPOCH_US,
            Random(1),
            SeededEntropy(derive_bytes(1, "bench")),
            START,
        )
        self.now = START
        self.ends: dict[Address, PeerQueues] = {}
        self.got: dict[Address, list[Message]] = {}
        self.events: list[Event] = []

    def up(self, *names: str) -> None:
        for name in names:
            peer = Address(name)
            if peer not in self.ends:
                self.ends[peer] = PeerQueues(256, 4096, 1 << 24, SeededEntropy(derive_bytes(2, name)))
            self.got.setdefault(peer, [])
            self.broker.peer_up(peer, self.now)
            self.ends[peer].peer_up(Address("B2.1"))
        self.run()

    def say(self, name: str, *messages: Message) -> None:
        for message in messages:
            self.ends[Address(name)].put(Address("B2.1"), message)
        self.run()

    def run(self) -> None:
        busy = True
        while busy:
            busy = False
            for peer, end in self.ends.items():
                for frame in end.frames(self.now, 1 << 20):
                    busy = True
                    self.broker.receive(frame.data, peer, self.now)
            for frame in self.broker.frames_to_send(self.now, 1 << 20):
                busy = True
                if frame.destination in self.ends:
                    message = self.ends[frame.destination].receive(frame.data, Address("B2.1"), self.now)
                    if message is not None:
                        self.got[frame.destination].append(message)
            while (event := self.broker.next_event()) is not None:
                self.events.append(event)
        for end in self.ends.values():
            end.handle(self.now + 1_000_000)
            for frame in end.frames(self.now, 1 << 20):
                self.broker.receive(frame.data, next(peer for peer, each in self.ends.items() if each is end), self.now)

    def complete(self) -> None:
        """All nearby replicas connect, and have nothing to report."""
        others = [f"B{node}.{index}" for node in (1, 2, 3) for index in (1, 2, 3) if (node, index) != (2, 1)]
        self.up(*others)
        for name in others:
            self.say(name, RoutingCopied(1))
        assert self.broker.has_routing_state


def holder(number: int) -> SigningKey:
    return SigningKey(Secret(derive_bytes(number, "holder")))


def subscription(number: int, profile: Profile = "hardened", edge: str = "B2") -> Claim:
    keys = keys_of(1, profile, "subscriber")
    until = claims.latest_expiry_us(EPOCH, EPOCH_US) - 1 if profile == "hardened" else START + 100_000_000
    words = predicate_codec(profile).encode_subscription(keys, Label(TOPIC))
    return claims.make_subscription(keys, node_id(edge), EPOCH, until, words, holder(number).public)


def brought(number: int, index: int = 1) -> BringClaim:
    return claims.make_bring(subscription(number), holder(number), broker_keyrings.signing("B2", index).public)


def test_a_broker_listens_connects_to_half_of_its_peers_and_asks_all_for_claims() -> None:
    bench = Bench()
    bench.run()
    assert Listen("broker") in bench.events
    called = {event.peer for event in bench.events if isinstance(event, Connect)}
    mine = bench.broker.key
    overlay = broker_keyrings.overlay()
    assert called == {replica.address for node in overlay.nodes for replica in node.replicas if mine < replica.key}
    bench.up("B1.1", "B2.2")
    for name in ("B1.1", "B2.2"):
        assert CopyRouting(1) in bench.got[Address(name)]


def test_a_broker_needs_a_key_of_the_overlay() -> None:
    with pytest.raises(ConfigError):
        Broker(
            BrokerConfig(),
            broker_keyrings.signed_overlay(),
            OPERATOR.public,
            Address("x"),
            SigningKey(Secret(bytes(32))),
            bytes(32),
            EPOCH_US,
            Random(1),
            SeededEntropy(bytes(32)),
            START,
        )


def test_an_overheard_claim_cannot_be_brought_by_another_client() -> None:
    bench = Bench()
    bench.complete()
    bench.up("friend", "reader")
    bench.say("friend", brought(1, index=2), subscription(1))
    assert bench.broker.sizes()["claims"] == bench.broker.sizes()["waiting"] == 0
    assert bench.broker.refused == {"ForgedError": 1, "MalformedError": 1}
    bench.say("reader", brought(1))
    bench.say("friend", brought(1))
    assert bench.broker.sizes()["waiting"] == 1
    assert bench.broker.refused["ForgedError"] >= 1
    bench.say("friend", claims.make_withdraw(subscription(1).id, holder(1)))
    assert bench.broker.sizes()["waiting"] == 1, "not even with the holder's word, on another link"
    bench.say("reader", claims.make_withdraw(subscription(1).id, holder(1)))
    assert bench.broker.sizes()["waiting"] == 0


BLOB, NAME = b"x", bytes(16)


@pytest.mark.parametrize(
    "message",
    [
        subscription(1),
        NextShare(NAME, BLOB),
        AgreementWord(NAME, 0, NAME, WhichFlood.ATTENDANCE, BLOB),
        DisputeDealing(NAME, 0, bytes(32), (1,)),
        ShareReceived(NAME, 0),
        CopyRouting(1),
        RoutingCopied(1),
        SessionItem(1, encode(ShareReceived(NAME, 0))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_clients_may_not_send_messages_of_replicas(message: Message) -> None:
    bench = Bench()
    bench.complete()
    bench.up("client")
    before = bench.broker.sizes()
    bench.say("client", message)
    assert bench.broker.refused == {"MalformedError": 1}
    assert bench.broker.sizes() == before


@pytest.mark.parametrize("message", [brought(1), FirstShare(NAME, BLOB)], ids=lambda m: type(m).__name__)
def test_replicas_may_not_send_messages_of_clients(message: Message) -> None:
    bench = Bench()
    bench.complete()
    bench.say("B1.1", message)
    assert bench.broker.refused.total() == 1
    assert bench.broker.sizes()["waiting"] == 0


def test_client_claims_reported_by_siblings_are_awaited_and_never_routed() -> None:
    bench = Bench()
    bench.up("B2.2", "B2.3")
    for name in ("B2.2", "B2.3"):
        bench.say(name, subscription(1))
    assert bench.broker.sizes()["awaited"] == 2, "by each of them"
    assert bench.broker.sizes()["claims"] == bench.broker.sizes()["waiting"] == 0
    bench.say("B2.2", subscription(2, edge="B3"))
    assert bench.broker.refused == {"StaleError": 1}


def test_a_flooding_client_is_disconnected_and_an_honest_one_loses_nothing() -> None:
    bench = Bench(messages_burst=16, messages_every_us=1_000_000)
    bench.complete()
    bench.up("client")
    bench.say("client", *[ConfirmContent(number.to_bytes(16, "big"), 0) for number in range(40)], brought(1))
    assert Disconnect(Address("client")) in bench.events
    assert bench.broker.refused["ExcessError"] >= 1
    assert bench.broker.sizes()["waiting"] == 0
    for _ in range(5):
        bench.ends[Address("client")].peer_lost(Address("B2.1"))
        bench.broker.peer_lost(Address("client"), bench.now)
        bench.now += 20_000_000
        bench.up("client")
    assert bench.broker.sizes()["waiting"] == 1, "what it said came in the end"


def test_clients_are_bounded_and_disconnected_ones_make_room() -> None:
    bench = Bench(clients_max=3)
    bench.complete()
    bench.up("c1", "c2", "c3")
    bench.up("c4")
    assert Disconnect(Address("c4")) in bench.events
    bench.say("c1", brought(1))
    for name in ("c1", "c2"):
        bench.broker.peer_lost(Address(name), bench.now)
    bench.up("c5")
    assert bench.broker.sizes()["clients"] == 3
    bench.events.clear()
    bench.up("c6")
    assert bench.events == [Disconnect(Address("c6"))], "who has claims keeps its place, though it is gone for a while"


def test_a_disconnected_client_is_forgotten_when_its_claims_have_ended() -> None:
    bench = Bench(client_us=10_000_000)
    bench.complete()
    bench.up("client")
    bench.say("client", brought(1))
    bench.broker.peer_lost(Address("client"), bench.now)
    while bench.broker.sizes()["clients"]:
        when = bench.broker.next_timer()
        assert when is not None
        bench.now = max(bench.now, when)
        bench.broker.handle_timer(bench.now)
    assert bench.now >= subscription(1).until_us
    assert bench.broker.sizes()["waiting"] == 0


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_a_publication_with_an_invalid_predicate_breaks_no_broker(profile: Profile) -> None:
    """Such content was stored, and examined again when any claim ended, which raised an unexpected error."""
    bench = Bench(profile)
    bench.complete()
    bench.up("publisher")
    keys, language = keys_of(1, profile), predicate_codec(profile)
    assert keys.signing is not None
    until = claims.latest_expiry_us(EPOCH, EPOCH_US) - 1 if profile == "hardened" else START + 100_000_000
    here = broker_keyrings.signing("B2", 1).public
    adverts = [
        claims.make_advertisement(
            keys, node_id("B2"), EPOCH, until, language.encode_advertisement(keys), holder(number).public
        )
        for number in (1, 2)
    ]
    bench.say("publisher", *[claims.make_bring(advert, holder(at), here) for at, advert in enumerate(adverts, 1)])
    other = language.encode_publication(keys_of(1, profile, topic=OTHER), Publication(((TOPIC_LABEL, OTHER),)))
    for number, says in enumerate((b"\xc1", other)):
        routing = Routing(adverts[0].id, says, bytes(16), number, bytes(8))
        manifest, (block,) = encode_content(
            routing.content, b"x", Strategy.COPIES, Scheme(node_id("B2"), 0, 3), keys.signing
        )
        bench.say("publisher", ForwardContent(routing, manifest.encode(), block.data, 1, 0))
    assert bench.broker.refused.total() == 2
    assert bench.broker.sizes()["contents"] == bench.broker.sizes()["content bytes"] == 0
    bench.say("publisher", claims.make_withdraw(adverts[1].id, holder(2)))
    assert bench.broker.sizes()["claims"] == 1


def test_content_that_just_fits_into_a_message_breaks_no_broker_when_its_attempt_has_a_longer_number() -> None:
    """The forwarded message was too long, which ended the broker."""
    bench = Bench()
    bench.complete()
    bench.up("publisher", "reader")
    keys, here = keys_of(1, "hardened"), broker_keyrings.signing("B2", 1).public
    assert keys.signing is not None
    words = predicate_codec("hardened").encode_advertisement(keys)
    advert = claims.make_advertisement(keys, node_id("B2"), EPOCH, subscription(1).until_us, words, holder(9).public)
    bench.say("publisher", claims.make_bring(advert, holder(9), here))
    bench.say("reader", brought(1))
    assert bench.broker.sizes()["claims"] == 2
    tags = tuple(number.to_bytes(16, "big") for number in range(176))
    says, last = msgspec.msgpack.encode((topic_tag(keys.token), (tags,))), (1 << 32) - 1
    routing = Routing(advert.id, says, bytes(16), last, bytes(8))

    def carry(size: int, attempt: int = 0) -> ForwardContent:
        digests = (blocks._digest(blocks.ContentBlock(routing.content, 1, bytes(size))), *[bytes(32)] * 254)
        manifest = blocks.ContentManifest(routing.content, size, 1, digests, bytes(64))
        assert keys.signing is not None
        signature = keys.signing.sign(blocks._signed_bytes(manifest), purpose=blocks._PURPOSE)
        signed = msgspec.structs.replace(manifest, signature=signature).encode()
        return ForwardContent(routing, signed, None if attempt else bytes(size), 0 if attempt else 1, attempt)

    size = 30_000 + ITEM_MAX - len(encode(carry(30_000)))
    assert len(encode(carry(size))) == ITEM_MAX
    bench.say("publisher", carry(size), carry(size, 255), carry(size, 7))
    assert bench.broker.refused.total() == 2
    assert not any(isinstance(message, ForwardContent) and message.block for message in bench.got[Address("reader")])


def test_hostile_bytes_change_only_a_counter() -> None:
    bench = Bench()
    bench.complete()
    rng = Random(5)
    before = bench.broker.sizes()
    for _ in range(500):
        data = rng.randbytes(rng.randrange(1, 60))
        bench.broker.receive(data, Address("B1.1"), bench.now)
        bench.broker.receive(bytes((0x81,)) + data, Address("B1.1"), bench.now)
        bench.broker.receive(data, Address("nobody"), bench.now)
    assert bench.broker.refused.total() == 1500
    assert bench.broker.sizes() == before


def connect_all(profile: Profile) -> Bench:
    bench = Bench(profile)
    bench.complete()
    bench.up("client")
    return bench


@pytest.mark.parametrize("profile", ["paper", "hardened"])
@settings(max_examples=12)
@given(drawn=st.lists(messages(), min_size=1, max_size=20), garbled=st.data())
def test_no_message_from_any_peer_breaks_a_broker(
    profile: Profile, drawn: list[Message], garbled: st.DataObject
) -> None:
    """Messages in an item or bare, and real ones with a changed name or number."""
    bench = connect_all(profile)
    for message in drawn:
        for name in ("client", "B1.1", "B2.2"):
            bench.broker.receive(encode(message), Address(name), bench.now)
            bench.say(name, message)
    real = brought(1) if profile == "hardened" else subscription(1, "paper")
    for data in with_garbage(real, garbled.draw(st.binary(min_size=1, max_size=8))):
        for name in ("client", "B1.1", "B2.2"):
            bench.broker.receive(data, Address(name), bench.now)
    bench.now += 3_600_000_000
    bench.broker.handle_timer(bench.now)

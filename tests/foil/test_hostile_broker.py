"""A Byzantine broker: members do not fault, stay within their bounds, and deliver nothing forged."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.foil_network import BROKER, CONFIG, SECOND, TOPIC, FoilNetwork, bodies_of, foil_keyring, price_publication
from veilcast.foil.config import FoilConfig
from veilcast.foil.event import PAYLOAD_SIZES
from veilcast.foil.member import FoilMember
from veilcast.foil.session import Login
from veilcast.machine import Address, Connect, Delivered, Disconnect, Record
from veilcast.net.mqtt import MQTT_LIMITS as BROKER_LIMITS
from veilcast.sim.engine import START_US
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import (
    ConnackPacket,
    Packet,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    Version,
)

SMALL = msgspec.structs.replace(
    CONFIG, window=8, requests_max=4, seeds_max=4, held_max=4, seen_max=8, unread_max=4, records_max=4, kept_max=4
)


class Victim:
    """A member that publishes and subscribes, under the control of its peer."""

    def __init__(self, config: FoilConfig = SMALL) -> None:
        rng = random.Random(5)
        keys = foil_keyring("publisher", 1, config.profile)
        login = Login("customer", b"a password")
        self.now = START_US
        self.member = FoilMember(config, keys, BROKER, rng, rng.randbytes, self.now, login=login)
        self.version = Version(config.version)
        self.member.subscribe(Label(TOPIC), self.now)
        self.calls: list[Address] = []
        self.delivered: list[Any] = []
        self.look()

    @property
    def peer(self) -> Address:
        return next(iter(self.member._periods)).session.peer

    def look(self) -> list[Packet]:
        """Collect the member's events and frames."""
        frames = self.member.frames_to_send(self.now, 1_000)
        while (event := self.member.next_event()) is not None:
            match event:
                case Connect(peer):
                    self.calls.append(peer)
                case Disconnect(peer):
                    self.member.peer_lost(peer, self.now)
                case Record(record, _):
                    self.member.stored(record, self.now)
                case Delivered():
                    self.delivered.append(event)
        assert len(frames) < 100
        return [mqtt.decode(frame.data, self.version) for frame in frames]

    def hear(self, data: bytes) -> list[Packet]:
        self.member.receive(data, self.peer, self.now)
        return self.look()

    def says(self, packet: Packet) -> list[Packet]:
        return self.hear(mqtt.encode(packet, self.version))

    def come_up(self) -> list[Packet]:
        self.member.peer_up(self.peer, self.now)
        return self.look()

    def welcome(self) -> list[Packet]:
        """Answer as a good broker, until all filters are granted."""
        self.come_up()
        told = self.says(ConnackPacket())
        after: list[Packet] = []
        for packet in told:
            if isinstance(packet, SubscribePacket):
                after += self.says(SubackPacket(packet.number, (1,) * len(packet.filters)))
        return after

    def wait(self, us: int) -> list[Packet]:
        self.now += us
        self.member.handle_timer(self.now)
        return self.look()

    def check(self) -> None:
        sizes = self.member.sizes()
        assert sizes["unacknowledged"] <= SMALL.window + SMALL.k_p + 4
        assert sizes["requests"] <= 4 * 2 * SMALL.requests_max
        assert sizes["chains"] <= SMALL.seeds_max
        assert sizes["held"] <= SMALL.held_max
        assert sizes["inbox"] <= SMALL.unread_max
        assert sizes["seen"] <= SMALL.seen_max
        assert sizes["pending"] <= SMALL.records_max
        timer = self.member.next_timer()
        assert timer is None or timer > 0
        assert not self.delivered


numbers = st.integers(1, 20)
codes = st.sampled_from([0, 0x80, 0x87, 0xFF])
topics = st.sampled_from(
    [
        "veilcast/on/x/0/1",
        "veilcast/again/x",
        "veilcast/here/x",
        "veilcast/ask/00",
        "veilcast/tell/00",
        "a",
        "veilcast",
        "/",
    ]
)
packets = st.one_of(
    st.builds(
        ConnackPacket,
        st.just(False),
        codes,
        receive_max=st.sampled_from([1, 65_535]),
        packet_max=st.sampled_from([None, 20]),
    ),
    st.builds(PublishPacket, topics, st.binary(max_size=40), st.one_of(st.just(0), numbers)),
    st.builds(PublishPacket, topics, st.sampled_from([bytes(1053), bytes(1081), b"\xff" * 1081]), numbers),
    st.builds(PubackPacket, numbers, st.sampled_from([0, 0x80, 0x97])),
    st.builds(SubackPacket, numbers, st.lists(st.sampled_from([0, 1, 0x80]), min_size=1, max_size=5).map(tuple)),
    st.builds(UnsubackPacket, numbers, st.just((0,))),
    st.just(PingrespPacket()),
    st.builds(mqtt.DisconnectPacket, st.sampled_from([0x80, 0x8E])),
    st.builds(mqtt.PingreqPacket),
)
acts = st.one_of(
    st.tuples(st.just("says"), packets),
    st.tuples(st.just("hear"), st.binary(max_size=30)),
    st.tuples(st.sampled_from(["up", "lost", "welcome", "publish", "wait"]), st.integers(1, 30 * SECOND)),
)


@settings(max_examples=50)
@given(st.lists(acts, max_size=40), st.sampled_from(["hardened", "paper"]))
def test_a_member_survives_any_broker_output_within_its_bounds(acts: list[Any], profile: str) -> None:
    victim = Victim(msgspec.structs.replace(SMALL, profile=profile))
    for what, how in acts:
        match what:
            case "says":
                victim.says(how)
            case "hear":
                victim.hear(how)
            case "up":
                victim.come_up()
            case "lost":
                victim.member.peer_lost(victim.peer, victim.now)
            case "welcome":
                victim.welcome()
            case "publish" if victim.member.sizes()["pending"] < SMALL.records_max:
                victim.member.publish(price_publication(how % 1000), victim.now)
                victim.look()
            case _:
                victim.wait(how)
        victim.check()


def test_a_silent_broker_is_left_and_called_again() -> None:
    victim = Victim()
    victim.come_up()
    calls = len(victim.calls)
    victim.wait(SMALL.retry_us)
    assert victim.member.refusals() == {"silent": 1}
    victim.wait(60 * SECOND)
    assert len(victim.calls) > calls


def test_a_refusing_broker_is_called_with_growing_pauses_and_its_reason_reported() -> None:
    victim = Victim()
    times = []
    for _ in range(8):
        victim.come_up()
        victim.says(ConnackPacket(code=0x87))
        calls = len(victim.calls)
        start = victim.now
        while len(victim.calls) == calls:
            victim.wait(SECOND // 10)
        times.append(victim.now - start)
    assert times[-1] > 3 * times[0]
    assert victim.member.refusals() == {"refused with code 135": 8}


def test_a_broker_that_refuses_publications_is_called_with_growing_pauses() -> None:
    victim = Victim()
    times = []
    for _ in range(8):
        [first, *_] = [packet for packet in victim.welcome() if isinstance(packet, PublishPacket)]
        victim.says(PubackPacket(first.number, 0x87))
        calls, start = len(victim.calls), victim.now
        while len(victim.calls) == calls:
            victim.wait(SECOND // 10)
        times.append(victim.now - start)
    assert times[-1] > 3 * times[0]


def test_a_broker_is_told_the_largest_acceptable_packet() -> None:
    """Any customer can publish a larger one, and the broker would send it again on every new stream."""
    [hello] = Victim().come_up()
    assert isinstance(hello, mqtt.ConnectPacket)
    assert hello.packet_max == BROKER_LIMITS.record_max
    assert hello.packet_max > max(PAYLOAD_SIZES) + 4096


def test_a_broker_that_acknowledges_unsent_messages_is_left() -> None:
    victim = Victim()
    victim.welcome()
    victim.says(PubackPacket(999))
    assert victim.member.refused["MalformedError"] == 1
    assert victim.member.refusals() == {"malformed": 1}


def test_a_smaller_window_of_the_broker_is_respected() -> None:
    victim = Victim()
    victim.come_up()
    told = victim.says(ConnackPacket(receive_max=2))
    sent: list[Packet] = []
    for packet in told:
        if isinstance(packet, SubscribePacket):
            sent += victim.says(SubackPacket(packet.number, (1,) * len(packet.filters)))
    victim.member.publish(price_publication(5), victim.now)
    sent += victim.look()
    assert len([packet for packet in sent if isinstance(packet, PublishPacket)]) == 2


def test_a_message_too_large_for_a_broker_waits_for_another() -> None:
    victim = Victim()
    victim.come_up()
    told = victim.says(ConnackPacket(packet_max=200))
    for packet in told:
        if isinstance(packet, SubscribePacket):
            victim.says(SubackPacket(packet.number, (1,) * len(packet.filters)))
    victim.member.publish(price_publication(5), victim.now)
    assert not any(isinstance(packet, PublishPacket) for packet in victim.look())
    assert "too large for the broker" in victim.member.refusals()
    victim.member.peer_lost(victim.peer, victim.now)
    assert sum(isinstance(packet, PublishPacket) for packet in victim.welcome()) > 3


def test_a_flood_of_unknown_candidates_is_acknowledged_and_forgotten() -> None:
    victim = Victim()
    victim.welcome()
    name = victim.member._periods.current(victim.now).names(TOPIC).name
    rng = random.Random(1)
    for number in range(300):
        payload = rng.randbytes(16) + (number).to_bytes(8, "big") + b"\0\4\0\1" + rng.randbytes(1053)
        told = victim.says(PublishPacket(f"veilcast/on/{name}/0/0/0/0/0/0/0/0/0/0/x", payload, number % 8 + 1))
        assert told == [PubackPacket(number % 8 + 1)]
        victim.check()


def test_forged_and_answered_requests_cause_no_repeats() -> None:
    network = FoilNetwork()
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    alice = network.places["alice"].member
    alice.publish(price_publication(100), network.now)
    network.run(5)
    asked = next(packet for who, _, packet in network.sent if who == "bob" and isinstance(packet, PublishPacket))
    assert "/again/" in asked.topic
    peer, before = next(iter(alice._periods)).session.peer, len(list(network.seen("alice")))
    for number, payload in enumerate([asked.payload, bytes(len(asked.payload)), b""] * 5, 1):
        alice.receive(mqtt.encode(PublishPacket(asked.topic, payload, number), Version.MQTT_5), peer, network.now)
        network.run(2)
    assert len(list(network.seen("alice"))) == before


def test_new_requests_are_answered_at_the_configured_rate() -> None:
    network = FoilNetwork()
    network.add("alice", "publisher")
    for name in ("bob", "carol", "dave"):
        network.add(name, "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    network.places["alice"].member.publish(price_publication(100), network.now)
    network.run(5)
    before = len(list(network.seen("alice")))
    for name in ("bob", "carol", "dave"):
        network.restart(name).subscribe(Label(TOPIC), network.now)
    network.run(5)
    repeated = len(list(network.seen("alice"))) - before
    assert 0 < repeated <= 2 * 4, "three readers who came back together are one round or two"


def test_a_true_body_moved_to_another_topic_slot_or_number_is_not_delivered() -> None:
    """If the broker moves bodies, the subscriber gets the published event or nothing."""
    network = FoilNetwork()
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    network.withheld.append("bob")
    network.places["alice"].member.publish(price_publication(100), network.now)
    network.run(1)
    bob = network.places["bob"].member
    peer = next(iter(bob._periods)).session.peer
    sent = [packet for _, _, packet in network.sent if isinstance(packet, PublishPacket) and "/on/" in packet.topic]
    for shift in range(1, 4):
        for packet in sent:
            payload = bytearray(packet.payload)
            payload[23] ^= shift  # The number of the event.
            bob.receive(mqtt.encode(PublishPacket(packet.topic, bytes(payload), 1), Version.MQTT_5), peer, network.now)
            payload = bytearray(packet.payload)
            payload[27] = (payload[27] + shift) % 4  # The slot.
            bob.receive(mqtt.encode(PublishPacket(packet.topic, bytes(payload), 1), Version.MQTT_5), peer, network.now)
    network.run(1)
    assert network.places["bob"].notes == []
    for packet in sent:
        bob.receive(mqtt.encode(PublishPacket(sent[0].topic, packet.payload, 1), Version.MQTT_5), peer, network.now)
    network.run(1)
    assert bodies_of(network.places["bob"].notes) == [b"planted body"]


@pytest.mark.parametrize("hidden", [b"a password", b"customer"])
def test_a_login_is_sent_to_the_broker_and_shown_in_no_repr(hidden: bytes) -> None:
    victim = Victim()
    login = victim.member._periods._login
    assert login is not None
    assert hidden in (login.user.encode(), login.password)
    assert "password" not in repr(login)
    [hello] = victim.come_up()
    assert isinstance(hello, mqtt.ConnectPacket)
    assert (hello.user, hello.password) == ("customer", b"a password")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    "topic",
    [b"veilcast/on/\0/1", b"veilcast/on/+/1", b"veilcast/on/\xff\xfe", b""],
    ids=["zero", "wild", "text", "none"],
)
def test_a_malformed_publication_of_an_outsider_is_acknowledged_and_the_stream_stays_up(
    topic: bytes, version: Literal[4, 5]
) -> None:
    """Otherwise it would arrive again on every next stream, and end that."""
    victim = Victim(msgspec.structs.replace(SMALL, version=version))
    victim.welcome()
    body = len(topic).to_bytes(2, "big") + topic + b"\0\x07" + b"\0payload"
    for _ in range(3):
        assert victim.hear(bytes((0x32, len(body))) + body) == [PubackPacket(7)]
    once = len(topic).to_bytes(2, "big") + topic + b"\0payload"
    assert victim.hear(bytes((0x30, len(once))) + once) == [], "and what asks for no answer gets none"
    assert victim.member.refused["MalformedError"] == 4
    assert victim.member.refusals() == {"malformed publication": 4}
    assert len(victim.calls) == 1, "nor is there a new stream"


def test_an_unexpected_property_does_not_end_the_stream() -> None:
    victim = Victim()
    victim.welcome()
    body = b"\0\x0dveilcast/on/x" + b"\0\x07" + b"\x03\x23\0\x01" + b"payload"
    assert victim.hear(bytes((0x32, len(body))) + body) == [PubackPacket(7)]
    assert victim.member.refusals() == {"malformed publication": 1}


@pytest.mark.parametrize("first", [0x34, 0x36], ids=["exactly once", "a quality that there is not"])
def test_a_packet_that_only_a_broker_can_have_malformed_ends_the_stream(first: int) -> None:
    victim = Victim()
    victim.welcome()
    body = b"\0\x01a" + b"\0\x07" + b"\0payload"
    victim.hear(bytes((first, len(body))) + body)
    assert victim.member.refusals() == {"malformed": 1}


def test_acknowledgements_of_one_batch_leave_together() -> None:
    victim = Victim()
    victim.welcome()
    for number in range(1, 21):
        packet = PublishPacket("veilcast/on/x", b"", number)
        victim.member.receive(mqtt.encode(packet, victim.version), victim.peer, victim.now)
    assert victim.look() == [PubackPacket(number) for number in range(1, 21)], (
        "in one turn of the driver, and so in one piece"
    )

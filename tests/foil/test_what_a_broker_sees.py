"""What the broker learns from every packet of hardened members and its time: nothing that reveals the truth.

The broker has all packets of the members, with their order and time. For each claim that something does not reveal the
truth, a control shows that a member with the mistake would be revealed by it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from support.foil_network import CONFIG, EPOCH_US, SECOND, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.core.inbox import Inbox
from veilcast.crypto.secret import Secret
from veilcast.foil import decoys, subscriber, winnower
from veilcast.foil.config import FoilConfig
from veilcast.foil.event import PAYLOAD_SIZES, CandidateHead, open_body
from veilcast.foil.repeats import REQUEST_BYTES
from veilcast.foil.winnower import Winnower
from veilcast.machine import Address, Delivered
from veilcast.topics import All, Equal, Label, Range
from veilcast.wire import mqtt
from veilcast.wire.mqtt import ConnectPacket, Packet, PubackPacket, PublishPacket, SubscribePacket, Version

RANGE = All(Label(TOPIC), Range("price", 100, 200))


def make_network(config: FoilConfig = CONFIG) -> FoilNetwork:
    network = FoilNetwork(config)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(RANGE, network.now)
    network.run(1)
    return network


def publish(network: FoilNetwork, values: list[float]) -> None:
    for value in values:
        network.places["alice"].member.publish(price_publication(value), network.now)
        network.run(0.1)


def walk(steps: int, seed: int = 0) -> list[float]:
    rng, value, values = random.Random(seed), 150.0, []
    for _ in range(steps):
        value = min(max(value + rng.choice([-8, -3, 2, 5]), 1), 1000)
        values.append(float(value))
    return values


def test_no_bytes_that_members_send_contain_a_name_string_or_body() -> None:
    network = make_network(msgspec.structs.replace(CONFIG, k_s=2))
    network.places["bob"].member.subscribe(All(Label(TOPIC), Equal("kind", "trade")), network.now)
    publish(network, walk(10))
    everything = b"".join(mqtt.encode(packet, Version.MQTT_5) for _, _, packet in network.sent)
    assert len(network.sent) > 60
    for planted in (b"acme", b"prices", b"trade", b"planted", b"alice", b"bob", TOPIC.encode().hex().encode()):
        assert planted not in everything


def test_nothing_is_retained_and_publications_have_few_sizes() -> None:
    network = make_network()
    publish(network, walk(10))
    network.kill_broker()
    network.start_broker()
    network.run(60)
    published = [packet for _, _, packet in network.sent if isinstance(packet, PublishPacket)]
    assert not any(packet.retained for packet in published)
    assert {len(packet.payload) for packet in published} == {PAYLOAD_SIZES[0], REQUEST_BYTES}
    assert len({len(packet.topic) for packet in published if "/on/" in packet.topic}) == 1


def test_candidates_leave_in_slot_order_and_the_truth_is_equally_often_in_each_slot() -> None:
    network = make_network()
    publish(network, walk(150))
    heads = [head for _, head, _ in network.seen("alice")]
    assert [head.slot for head in heads] == [0, 1, 2, 3] * 150
    slots = Counter(item.slot for items in network.places["alice"].member._store._items.values() for item in items)
    assert all(abs(slots[slot] - 37.5) < 25 for slot in range(4))


def test_fakes_do_not_stay_in_their_slots() -> None:
    """A constant price keeps all candidates constant; an observer that saw them in one order each time could follow
    each."""
    network = make_network()
    publish(network, [*walk(30), *[150.0] * 30])
    topics = [topic for topic, _, _ in network.seen("alice")][-4 * 29 :]
    orders = {tuple(topics[start : start + 4]) for start in range(0, len(topics), 4)}
    assert len({frozenset(order) for order in orders}) <= 2
    assert len(orders) > 6


def test_a_subscriber_does_equal_work_for_malformed_fakes_and_truths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a broker had only to send one candidate ten thousand times, and to measure the time."""
    network = make_network()
    publish(network, [150.0])
    bob = network.places["bob"].member
    opened: Counter[int] = Counter()

    def counted(head: CandidateHead, secret: Secret, sealed: bytes) -> bytes:
        opened[head.slot] += 1
        return open_body(head, secret, sealed)

    monkeypatch.setattr(winnower, "open_body", counted)
    spoilt = [head.encode() + body[:-1] + bytes([body[-1] ^ 1]) for _, head, body in network.seen("alice")]
    for payload in spoilt * 3:
        assert bob._winnower.winnow(next(iter(bob._periods)), TOPIC, payload) is None
    assert opened == Counter(dict.fromkeys(range(4), 3))
    assert bob._winnower.counts["forged"] == 3


def answers(network: FoilNetwork, packets: list[PublishPacket]) -> list[list[Packet]]:
    """The packets that bob sends back for each of these, one after the other, before anything else happens."""
    bob = network.places["bob"].member
    peer = next(iter(bob._periods)).session.peer
    told = []
    for number, packet in enumerate(packets, 1):
        bob.receive(mqtt.encode(PublishPacket(packet.topic, packet.payload, number), Version.MQTT_5), peer, network.now)
        told.append([mqtt.decode(frame.data, Version.MQTT_5) for frame in bob.frames_to_send(network.now, 100)])
    return told


def some_events(network: FoilNetwork) -> list[PublishPacket]:
    publish(network, walk(8))
    return [packet for _, _, packet in network.sent if isinstance(packet, PublishPacket) and "/on/" in packet.topic]


def test_truth_fakes_duplicates_and_garbage_are_acknowledged_alike_and_at_once() -> None:
    network = make_network()
    network.withheld.append("bob")
    packets = some_events(network)
    rubbish = [
        PublishPacket(packets[0].topic, b"x"),
        PublishPacket("another/topic", b""),
        PublishPacket("veilcast/again/x", bytes(1053)),
    ]
    told = answers(network, [*packets, *packets, *rubbish])
    assert told == [[PubackPacket(number)] for number in range(1, len(told) + 1)]
    delivered = []
    network.places["bob"].member.handle_timer(network.now + CONFIG.winnow_us)
    while (event := network.places["bob"].member.next_event()) is not None:
        delivered += [event.note] if isinstance(event, Delivered) else []
    assert bodies_of(delivered) == [b"planted body"] * 8


def test_no_candidate_is_opened_before_its_whole_batch_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the truth takes ten times as long as recognising a fake, and a broker can measure time."""
    network = make_network()
    network.withheld.append("bob")
    packets = some_events(network)
    opened: list[int] = []
    monkeypatch.setattr(Winnower, "winnow", lambda self, *arguments: opened.append(1))
    answers(network, packets)
    assert opened == []
    network.places["bob"].member.handle_timer(network.now + CONFIG.winnow_us)
    assert len(opened) == len(packets)


def test_acknowledging_with_the_owner_would_reveal_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the comparison above finds every truth, if there is a difference."""
    network = make_network()
    network.withheld.append("bob")
    packets = some_events(network)
    bob = network.places["bob"].member
    session = next(iter(bob._periods)).session
    taken: list[int] = []
    monkeypatch.setattr(Inbox, "put", lambda self, *arguments: taken.append(1))
    send = session._send

    def late(packet: Packet, now: int) -> None:
        if not isinstance(packet, PubackPacket):
            send(packet, now)

    monkeypatch.setattr(session, "_send", late)
    heard = session._callbacks.on_message

    def hears(packet: PublishPacket, now: int) -> None:
        before = len(taken)
        heard(packet, now)
        bob._subscriber._open_queue(now)
        if len(taken) == before:
            send(PubackPacket(packet.number), now)

    monkeypatch.setattr(session, "_callbacks", session._callbacks._replace(on_message=hears))
    unanswered = [place for place, told in enumerate(answers(network, packets)) if not told]
    assert len(unanswered) == 8


def test_an_owners_acknowledgement_sends_nothing() -> None:
    network = make_network()
    network.acknowledges = False
    publish(network, walk(5))
    bob = network.places["bob"].member
    assert bob.frames_to_send(network.now, 100) == []
    for note in network.places["bob"].notes:
        bob.acknowledge(note.id, network.now)
    assert bob.frames_to_send(network.now, 100) == []


def test_a_repeated_event_is_byte_identical_even_after_a_restart() -> None:
    network = make_network()
    network.withheld.append("alice")
    publish(network, walk(5))
    network.withheld.clear()
    network.leave("alice")
    network.away.clear()
    network.restart("alice")
    network.run(30)
    seen: dict[tuple[int, int], set[tuple[str, bytes]]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for topic, head, body in network.seen("alice"):
        seen.setdefault((head.number, head.slot), set()).add((topic, body))
        times[head.number, head.slot] += 1
    assert len(seen) == 5 * 4
    assert all(len(each) == 1 for each in seen.values())
    assert min(times.values()) > 1, "they did leave again"


def areas(network: FoilNetwork) -> list[frozenset[tuple[str, ...]]]:
    """Bob's subscriptions in each session, without the names that change with the epoch."""
    asked: dict[Address, set[tuple[str, ...]]] = {}
    for who, peer, packet in network.sent:
        if who == "bob" and isinstance(packet, SubscribePacket):
            bits = (tuple(each.split("/")[3:]) for each in packet.filters if "/on/" in each)
            asked.setdefault(peer, set()).update(bits)
    return [frozenset(each) for each in asked.values()]


def redrawn(*arguments: object) -> object:
    """The mistake: decoys drawn afresh each time."""
    area, topic, schema, config, _ = arguments
    key = Secret(random.Random(len(DRAWN)).randbytes(32))
    DRAWN.append(key)
    return decoys.make_decoys(area, topic, schema, config, key)  # type: ignore[arg-type]


DRAWN: list[object] = []


@pytest.mark.parametrize("mistake", [None, redrawn])
def test_decoys_are_the_same_in_every_run_and_epoch_so_intersection_reveals_nothing(
    mistake: Callable[..., object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many places are as round as this range, so sets that are drawn anew have nothing else in common.
    anywhere = All(Label(TOPIC), Range("price", 137, 211))
    config = msgspec.structs.replace(CONFIG, k_s=4, keep_us=SECOND)
    plain = FoilNetwork(msgspec.structs.replace(config, k_s=0))
    plain.add("bob", "subscriber").subscribe(anywhere, plain.now)
    plain.run(1)
    [true] = areas(plain)
    if mistake is not None:
        monkeypatch.setattr(subscriber, "make_decoys", mistake)
    network = FoilNetwork(config)
    network.add("bob", "subscriber").subscribe(anywhere, network.now)
    network.run(1)
    for _ in range(3):
        network.now = (network.now // EPOCH_US + 1) * EPOCH_US + SECOND
        network.restart("bob").subscribe(anywhere, network.now)
        network.run(5)
    sets = areas(network)
    assert len(sets) >= 4
    common = frozenset.intersection(*sets)
    assert true <= common
    if mistake is None:
        assert all(each == common for each in sets)
        assert len(common) >= 3 * len(true)
    else:
        assert len(common) < 2 * len(true), "the control: what is in all sets is what was meant"


def test_client_ids_change_with_the_epoch_survive_restarts_and_reveal_nothing() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, keep_us=SECOND))
    network.add("bob", "subscriber").subscribe(RANGE, network.now)
    network.run(1)
    network.restart("bob").subscribe(RANGE, network.now)
    network.run(1)
    first = [packet.client for _, _, packet in network.sent if isinstance(packet, ConnectPacket)]
    assert len(first) == 2
    assert len(set(first)) == 1
    network.now = (network.now // EPOCH_US + 2) * EPOCH_US
    network.run(1)
    later = {packet.client for _, _, packet in network.sent if isinstance(packet, ConnectPacket)}
    assert len(later) > 1
    assert all(len(client) == 20 and int(client, 16) for client in later)


def test_no_session_uses_the_names_of_two_epochs() -> None:
    network = make_network()
    for _ in range(2):
        network.now = (network.now // EPOCH_US + 1) * EPOCH_US
        network.run(2)
        publish(network, walk(3))
    names: dict[Address, set[str]] = {}
    for _, peer, packet in network.sent:
        topics = packet.filters if isinstance(packet, SubscribePacket) else ()
        topics = (packet.topic,) if isinstance(packet, PublishPacket) else topics
        names.setdefault(peer, set()).update(topic.split("/")[2] for topic in topics)
    assert len(names) >= 3
    assert all(len(each) == 1 for each in names.values())
    assert len(set.union(*names.values())) == len(names)


def test_filters_of_truth_and_decoys_have_no_fixed_order() -> None:
    """Over many subscribers, the first filter is a true one no more often than any other."""
    config = msgspec.structs.replace(CONFIG, k_s=3)
    firsts = 0
    for seed in range(40):
        network = FoilNetwork(config, seed=seed)
        bob = network.add("bob", "subscriber")
        bob.subscribe(All(Label(TOPIC), Range("price", 128, 255.5)), network.now)
        network.run(1)
        asked = next(packet for _, _, packet in network.sent if isinstance(packet, SubscribePacket))
        firsts += asked.filters[0].endswith("/0/0/1/#")
        assert len([each for each in asked.filters if "/on/" in each]) == 4, "each of them is one filter"
    assert firsts < 20

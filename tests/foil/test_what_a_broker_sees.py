"""What the broker learns from every packet and every moment of members, hardened: nothing that it could tell truth by.

The broker has all that members send, and the order and time of it. Where a claim is that something does not tell the
truth, a member with the mistake in it is shown to be told by it.
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


def room_of(config: FoilConfig = CONFIG) -> FoilNetwork:
    room = FoilNetwork(config)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(RANGE, room.now)
    room.run(1)
    return room


def publish(room: FoilNetwork, values: list[float]) -> None:
    for value in values:
        room.places["alice"].member.publish(price_publication(value), room.now)
        room.run(0.1)


def walk(steps: int, seed: int = 0) -> list[float]:
    rng, value, values = random.Random(seed), 150.0, []
    for _ in range(steps):
        value = min(max(value + rng.choice([-8, -3, 2, 5]), 1), 1000)
        values.append(float(value))
    return values


def test_no_name_no_word_and_no_body_is_in_any_byte_that_members_send() -> None:
    room = room_of(msgspec.structs.replace(CONFIG, k_s=2))
    room.places["bob"].member.subscribe(All(Label(TOPIC), Equal("kind", "trade")), room.now)
    publish(room, walk(10))
    everything = b"".join(mqtt.encode(packet, Version.MQTT_5) for _, _, packet in room.sent)
    assert len(room.sent) > 60
    for planted in (b"acme", b"prices", b"trade", b"planted", b"alice", b"bob", TOPIC.encode().hex().encode()):
        assert planted not in everything


def test_nothing_is_retained_and_all_that_is_published_is_of_few_sizes() -> None:
    room = room_of()
    publish(room, walk(10))
    room.kill_broker()
    room.start_broker()
    room.run(60)
    published = [packet for _, _, packet in room.sent if isinstance(packet, PublishPacket)]
    assert not any(packet.retained for packet in published)
    assert {len(packet.payload) for packet in published} == {PAYLOAD_SIZES[0], REQUEST_BYTES}
    assert len({len(packet.topic) for packet in published if "/on/" in packet.topic}) == 1


def test_candidates_leave_together_in_the_order_of_slots_and_the_truth_is_in_each_as_often() -> None:
    room = room_of()
    publish(room, walk(150))
    heads = [head for _, head, _ in room.seen("alice")]
    assert [head.slot for head in heads] == [0, 1, 2, 3] * 150
    slots = Counter(item.slot for items in room.places["alice"].member._keeping._items.values() for item in items)
    assert all(abs(slots[slot] - 37.5) < 25 for slot in range(4))


def test_fakes_do_not_stay_in_their_slots() -> None:
    """A price that stays lets all candidates stay; whoever saw them in one order each time could follow each."""
    room = room_of()
    publish(room, [*walk(30), *[150.0] * 30])
    topics = [topic for topic, _, _ in room.seen("alice")][-4 * 29 :]
    orders = {tuple(topics[start : start + 4]) for start in range(0, len(topics), 4)}
    assert len({frozenset(order) for order in orders}) <= 2
    assert len(orders) > 6


def test_a_reader_works_as_hard_on_a_spoilt_fake_as_on_a_spoilt_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker has only to send one candidate ten thousand times, and to look at a clock."""
    room = room_of()
    publish(room, [150.0])
    bob = room.places["bob"].member
    opened: Counter[int] = Counter()

    def counted(head: CandidateHead, secret: Secret, sealed: bytes) -> bytes:
        opened[head.slot] += 1
        return open_body(head, secret, sealed)

    monkeypatch.setattr(winnower, "open_body", counted)
    spoilt = [head.encode() + body[:-1] + bytes([body[-1] ^ 1]) for _, head, body in room.seen("alice")]
    for payload in spoilt * 3:
        assert bob._winnower.winnow(next(iter(bob._spans)), TOPIC, payload) is None
    assert opened == Counter(dict.fromkeys(range(4), 3))
    assert bob._winnower.counts["forged"] == 3


def answers(room: FoilNetwork, packets: list[PublishPacket]) -> list[list[Packet]]:
    """What bob sends back on each of these, one after the other, and before anything else happens."""
    bob = room.places["bob"].member
    peer = next(iter(bob._spans)).session.peer
    told = []
    for number, packet in enumerate(packets, 1):
        bob.receive(mqtt.encode(PublishPacket(packet.topic, packet.payload, number), Version.MQTT_5), peer, room.now)
        told.append([mqtt.decode(frame.data, Version.MQTT_5) for frame in bob.frames_to_send(room.now, 100)])
    return told


def some_events(room: FoilNetwork) -> list[PublishPacket]:
    publish(room, walk(8))
    return [packet for _, _, packet in room.sent if isinstance(packet, PublishPacket) and "/on/" in packet.topic]


def test_truth_fakes_doubles_and_rubbish_are_acknowledged_alike_and_at_once() -> None:
    room = room_of()
    room.withheld.append("bob")
    packets = some_events(room)
    rubbish = [
        PublishPacket(packets[0].topic, b"x"),
        PublishPacket("another/topic", b""),
        PublishPacket("veilcast/again/x", bytes(1053)),
    ]
    told = answers(room, [*packets, *packets, *rubbish])
    assert told == [[PubackPacket(number)] for number in range(1, len(told) + 1)]
    delivered = []
    room.places["bob"].member.handle_timer(room.now + CONFIG.winnow_us)
    while (event := room.places["bob"].member.next_event()) is not None:
        delivered += [event.note] if isinstance(event, Delivered) else []
    assert bodies_of(delivered) == [b"planted body"] * 8


def test_nothing_is_opened_before_all_that_came_with_it_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open the truth takes ten times as long as to know a fake, and a broker has a clock."""
    room = room_of()
    room.withheld.append("bob")
    packets = some_events(room)
    opened: list[int] = []
    monkeypatch.setattr(Winnower, "winnow", lambda self, *arguments: opened.append(1))
    answers(room, packets)
    assert opened == []
    room.places["bob"].member.handle_timer(room.now + CONFIG.winnow_us)
    assert len(opened) == len(packets)


def test_a_reader_that_acknowledged_when_its_owner_did_would_be_known_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what is compared above is enough to find every truth, if there is something to find."""
    room = room_of()
    room.withheld.append("bob")
    packets = some_events(room)
    bob = room.places["bob"].member
    session = next(iter(bob._spans)).session
    taken: list[int] = []
    monkeypatch.setattr(Inbox, "put", lambda self, *arguments: taken.append(1))
    send = session._send

    def late(packet: Packet, now: int) -> None:
        if not isinstance(packet, PubackPacket):
            send(packet, now)

    monkeypatch.setattr(session, "_send", late)
    heard = session._ears.on_message

    def hears(packet: PublishPacket, now: int) -> None:
        before = len(taken)
        heard(packet, now)
        bob._reading._look(now)
        if len(taken) == before:
            send(PubackPacket(packet.number), now)

    monkeypatch.setattr(session, "_ears", session._ears._replace(on_message=hears))
    unanswered = [place for place, told in enumerate(answers(room, packets)) if not told]
    assert len(unanswered) == 8


def test_an_owner_who_acknowledges_sends_nothing() -> None:
    room = room_of()
    room.acknowledges = False
    publish(room, walk(5))
    bob = room.places["bob"].member
    assert bob.frames_to_send(room.now, 100) == []
    for note in room.places["bob"].notes:
        bob.acknowledge(note.id, room.now)
    assert bob.frames_to_send(room.now, 100) == []


def test_an_event_that_leaves_again_is_the_same_to_the_last_byte_also_in_another_life() -> None:
    room = room_of()
    room.withheld.append("alice")
    publish(room, walk(5))
    room.withheld.clear()
    room.leave("alice")
    room.away.clear()
    room.restart("alice")
    room.run(30)
    seen: dict[tuple[int, int], set[tuple[str, bytes]]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for topic, head, body in room.seen("alice"):
        seen.setdefault((head.number, head.slot), set()).add((topic, body))
        times[head.number, head.slot] += 1
    assert len(seen) == 5 * 4
    assert all(len(each) == 1 for each in seen.values())
    assert min(times.values()) > 1, "they did leave again"


def areas(room: FoilNetwork) -> list[frozenset[tuple[str, ...]]]:
    """Of each session, what bob asked for, without the names that change with the epoch."""
    asked: dict[Address, set[tuple[str, ...]]] = {}
    for who, peer, packet in room.sent:
        if who == "bob" and isinstance(packet, SubscribePacket):
            bits = (tuple(each.split("/")[3:]) for each in packet.filters if "/on/" in each)
            asked.setdefault(peer, set()).update(bits)
    return [frozenset(each) for each in asked.values()]


def redrawn(*arguments: object) -> object:
    """Decoys drawn anew each time: the mistake."""
    area, topic, schema, config, _ = arguments
    key = Secret(random.Random(len(DRAWN)).randbytes(32))
    DRAWN.append(key)
    return decoys.make_decoys(area, topic, schema, config, key)  # type: ignore[arg-type]


DRAWN: list[object] = []


@pytest.mark.parametrize("mistake", [None, redrawn])
def test_decoys_are_the_same_in_every_life_and_epoch_so_nothing_is_left_when_sets_are_intersected(
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
    room = FoilNetwork(config)
    room.add("bob", "subscriber").subscribe(anywhere, room.now)
    room.run(1)
    for _ in range(3):
        room.now = (room.now // EPOCH_US + 1) * EPOCH_US + SECOND
        room.restart("bob").subscribe(anywhere, room.now)
        room.run(5)
    sets = areas(room)
    assert len(sets) >= 4
    common = frozenset.intersection(*sets)
    assert true <= common
    if mistake is None:
        assert all(each == common for each in sets)
        assert len(common) >= 3 * len(true)
    else:
        assert len(common) < 2 * len(true), "the control: what is in all sets is what was meant"


def test_client_ids_are_others_in_each_epoch_the_same_in_each_life_and_tell_nothing() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, keep_us=SECOND))
    room.add("bob", "subscriber").subscribe(RANGE, room.now)
    room.run(1)
    room.restart("bob").subscribe(RANGE, room.now)
    room.run(1)
    first = [packet.client for _, _, packet in room.sent if isinstance(packet, ConnectPacket)]
    assert len(first) == 2
    assert len(set(first)) == 1
    room.now = (room.now // EPOCH_US + 2) * EPOCH_US
    room.run(1)
    later = {packet.client for _, _, packet in room.sent if isinstance(packet, ConnectPacket)}
    assert len(later) > 1
    assert all(len(client) == 20 and int(client, 16) for client in later)


def test_no_session_has_the_names_of_two_epochs() -> None:
    room = room_of()
    for _ in range(2):
        room.now = (room.now // EPOCH_US + 1) * EPOCH_US
        room.run(2)
        publish(room, walk(3))
    names: dict[Address, set[str]] = {}
    for _, peer, packet in room.sent:
        topics = packet.filters if isinstance(packet, SubscribePacket) else ()
        topics = (packet.topic,) if isinstance(packet, PublishPacket) else topics
        names.setdefault(peer, set()).update(topic.split("/")[2] for topic in topics)
    assert len(names) >= 3
    assert all(len(each) == 1 for each in names.values())
    assert len(set.union(*names.values())) == len(names)


def test_filters_of_truth_and_decoys_are_in_no_fixed_order() -> None:
    """Over many readers the first filter that is asked for is one of the true ones no more often than any other."""
    config = msgspec.structs.replace(CONFIG, k_s=3)
    firsts = 0
    for seed in range(40):
        room = FoilNetwork(config, seed=seed)
        bob = room.add("bob", "subscriber")
        bob.subscribe(All(Label(TOPIC), Range("price", 128, 255.5)), room.now)
        room.run(1)
        asked = next(packet for _, _, packet in room.sent if isinstance(packet, SubscribePacket))
        firsts += asked.filters[0].endswith("/0/0/1/#")
        assert len([each for each in asked.filters if "/on/" in each]) == 4, "each of them is one filter"
    assert firsts < 20

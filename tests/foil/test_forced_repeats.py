"""A member that makes up absences: what it can have publishers send, and what others lose by it."""

from __future__ import annotations

from support.foil_network import CONFIG, SECOND, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.foil.repeats import Absence, RepeatPace, seal_repeat_request
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version


def parley() -> FoilNetwork:
    room = FoilNetwork(CONFIG)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    return room


def forge(room: FoilNetwork, number: int) -> None:
    """Who has the topic's key asks for all, in a name that is new."""
    member = room.places["alice"].member
    span = member._spans.current(room.now)
    absence = Absence(number.to_bytes(8, "big"), 0, room.now)
    payload = seal_repeat_request(span.keys(TOPIC), [absence], lambda size: bytes(size))
    packet = PublishPacket(span.names(TOPIC).repeat_topic, payload, 1 + number % 1000)
    member.receive(mqtt.encode(packet, Version.MQTT_5), span.session.peer, room.now)


def times_sent(room: FoilNetwork, number: int) -> int:
    return sum(head.number == number and head.slot == 0 for _, head, _ in room.seen("alice"))


def test_who_makes_up_absences_has_each_event_repeated_ever_more_seldom() -> None:
    room = parley()
    room.places["alice"].member.publish(price_publication(100), room.now)
    room.run(1)
    for number in range(600):
        forge(room, number)
        room.run(0.1)
    # After 1, 2, 4, 8 and then every 16 seconds: seven times, and the one that was meant.
    assert 5 <= times_sent(room, 0) <= 9


def test_an_honest_reader_gets_what_it_missed_meanwhile() -> None:
    room = parley()
    room.run(1)
    room.withheld.append("bob")
    for number in range(20):
        room.places["alice"].member.publish(price_publication(100 + number, body=b"%d" % number), room.now)
        forge(room, number)
        room.run(0.5)
    room.kill_broker()
    room.withheld.clear()
    room.start_broker()
    for number in range(20, 400):
        forge(room, number)
        room.run(0.1)
    assert sorted(map(int, bodies_of(room.places["bob"].notes))) == list(range(20))


def test_no_round_begins_while_one_is_under_way() -> None:
    room = parley()
    member = room.places["alice"].member
    for number in range(5):
        member.publish(price_publication(100 + number), room.now)
        room.run(0.1)
    room.run(30)
    before = sum(1 for _ in room.seen("alice"))
    room.broker, broker = None, room.broker  # It takes what it is sent, and acknowledges nothing.
    for number in range(80):
        forge(room, number)
        room.run(0.1)
    after = sum(1 for _ in room.seen("alice"))
    assert after - before <= 5 * (CONFIG.k_p + 1)
    assert broker is not None


def test_pauses_double_up_to_sixteen_times_and_what_is_remembered_is_bounded() -> None:
    pace, now, gaps = RepeatPace(SECOND, 10), 0, []
    assert pace.wait_us("x", now) == 0
    for _ in range(7):
        wait = pace.wait_us("x", now)
        gaps.append(wait // SECOND)
        now += wait
        assert pace.wait_us("x", now) == 0
    assert gaps == [1, 2, 4, 8, 16, 16, 16]
    for number in range(100):
        pace.wait_us(number, now)
    assert len(pace) == 10

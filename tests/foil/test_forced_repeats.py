"""A member that invents absences: what publishers send because of it, and what others lose."""

from __future__ import annotations

from support.foil_network import CONFIG, SECOND, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.foil.repeats import Absence, RepeatPace, seal_repeat_request
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version


def make_network() -> FoilNetwork:
    network = FoilNetwork(CONFIG)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    return network


def forge(network: FoilNetwork, number: int) -> None:
    """A holder of the topic's key asks for everything, under a new name."""
    member = network.places["alice"].member
    period = member._periods.current(network.now)
    absence = Absence(number.to_bytes(8, "big"), 0, network.now)
    payload = seal_repeat_request(period.keys(TOPIC), [absence], lambda size: bytes(size))
    packet = PublishPacket(period.names(TOPIC).repeat_topic, payload, 1 + number % 1000)
    member.receive(mqtt.encode(packet, Version.MQTT_5), period.session.peer, network.now)


def times_sent(network: FoilNetwork, number: int) -> int:
    return sum(head.number == number and head.slot == 0 for _, head, _ in network.seen("alice"))


def test_invented_absences_cause_ever_rarer_repeats() -> None:
    network = make_network()
    network.places["alice"].member.publish(price_publication(100), network.now)
    network.run(1)
    for number in range(600):
        forge(network, number)
        network.run(0.1)
    # After 1, 2, 4, 8 and then every 16 seconds: seven times, and the one that was meant.
    assert 5 <= times_sent(network, 0) <= 9


def test_an_honest_subscriber_gets_what_it_missed_meanwhile() -> None:
    network = make_network()
    network.run(1)
    network.withheld.append("bob")
    for number in range(20):
        network.places["alice"].member.publish(price_publication(100 + number, body=b"%d" % number), network.now)
        forge(network, number)
        network.run(0.5)
    network.kill_broker()
    network.withheld.clear()
    network.start_broker()
    for number in range(20, 400):
        forge(network, number)
        network.run(0.1)
    assert sorted(map(int, bodies_of(network.places["bob"].notes))) == list(range(20))


def test_no_round_begins_while_one_is_in_flight() -> None:
    network = make_network()
    member = network.places["alice"].member
    for number in range(5):
        member.publish(price_publication(100 + number), network.now)
        network.run(0.1)
    network.run(30)
    before = sum(1 for _ in network.seen("alice"))
    network.broker, broker = None, network.broker  # It takes what it is sent, and acknowledges nothing.
    for number in range(80):
        forge(network, number)
        network.run(0.1)
    after = sum(1 for _ in network.seen("alice"))
    assert after - before <= 5 * (CONFIG.k_p + 1)
    assert broker is not None


def test_pauses_double_up_to_sixteen_times_and_their_table_is_bounded() -> None:
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

"""A publication that stays at the edge node: the publisher's application is told, and why."""

from __future__ import annotations

from support.simulated_overlay import TOPIC, SimulatedOverlay, names_of
from veilcast.machine import Address
from veilcast.node.brokers import hindrances
from veilcast.topics import Label


def test_a_remote_node_without_a_majority_is_reported_until_it_has_one() -> None:
    net = SimulatedOverlay("hardened", clients={"p": "a", "s": "c"})
    net.subscribe("s", Label(TOPIC))
    net.stand()
    victims = names_of("b")[:2]
    for name in victims:
        net.world.crash(Address(name))
    net.run(1)
    net.publish("p", b"stuck")
    net.run(1)
    publisher = net.machine("p")
    assert hindrances(publisher, net.world.now) == [], "it may be on its way"
    net.run(40)
    (told,) = hindrances(publisher, net.world.now)
    assert "the brokers have not confirmed for 41 s that subscribers have what you published" in told
    assert publisher.delay(net.world.now).until_us is None
    for name in victims:
        net.world.restart(Address(name))
    net.run_until(lambda: not net.pending("p"), 120)
    assert net.delivered_to("s") == [b"stuck"]
    assert hindrances(publisher, net.world.now) == []
    assert publisher.delay(net.world.now) is None


def test_an_edge_node_without_a_majority_is_reported_as_the_cause() -> None:
    net = SimulatedOverlay("hardened", clients={"p": "a", "s": "c"})
    net.stand()
    for name in names_of("a")[:2]:
        net.world.crash(Address(name))
    net.publish("p", b"stuck")
    net.run(60)
    publisher = net.machine("p")
    assert hindrances(publisher, net.world.now) == ["1 of the 3 replicas of the edge node answer, and 2 are needed"]
    assert publisher.delay(net.world.now).reason == "too few replicas of the edge node answer"

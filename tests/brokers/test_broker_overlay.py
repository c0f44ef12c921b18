"""Brokers and clients together: publications over three nodes of three replicas, in both profiles."""

from __future__ import annotations

import pytest

from support.broker_keyrings import TOPIC
from support.broker_network import BrokerNetwork
from veilcast.authority.topic_record import Profile
from veilcast.machine import Publication
from veilcast.topics import All, Label, Range

PROFILES: list[Profile] = ["paper", "hardened"]


def publication(body: bytes, level: int = 1) -> Publication:
    return Publication((("topic", TOPIC), ("level", level)), body)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_publication_is_forwarded_over_three_nodes_and_settled(profile: Profile) -> None:
    network = BrokerNetwork(profile)
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", "B3", 1)
    network.run(1)
    assert all(broker.has_routing_state for broker in network.brokers())
    number = reader.subscribe(All(Label(TOPIC), Range("level", 0, 3)), network.now)
    network.touch("R")
    network.run(5)
    assert network.stands == [("R", number)]
    publisher.publish(publication(b"wanted"), network.now)
    publisher.publish(publication(b"not wanted", level=9), network.now)
    network.touch("P")
    network.run(5)
    assert network.heard == [("R", number, b"wanted")]
    assert publisher.sizes()["pending"] == 0, "both are settled: nobody lacks anything"
    for broker in network.brokers():
        assert broker.sizes()["contents"] == 0
        assert not broker.suspects()
        assert broker.observed_count == broker.sizes()["contents done"] >= 1
        assert set(broker.refused) <= {"StaleError"}, "the last to say that it is done says so to those who are"

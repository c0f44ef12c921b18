"""Attacks on joining replicas: what Byzantine replicas of their own node and of the next withhold from them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.broker_keyrings import OPERATOR, TOPIC
from support.broker_network import BrokerNetwork, with_replicas
from veilcast.authority.topic_record import Profile
from veilcast.brokers.broker import Broker, BrokerRoutingView
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.overlay import node_id
from veilcast.machine import Address, Publication
from veilcast.topics import Label
from veilcast.wire.brokers import CopyRouting, RoutingCopied

FRESH = BrokerClientConfig(refresh_messages=1)
"""Every publication has its own key, which must reach its subscriber."""


def publish(network: BrokerNetwork, count: int) -> None:
    """One publication per second."""
    machine = network.places[Address("P")].machine
    for number in range(count):
        machine.publish(Publication((("topic", TOPIC),), b"%d" % number), network.now)
        network.touch("P")
        network.run(1)


def nothing_wanted(faulty: Broker) -> None:
    """It reports to all that there are no subscribers."""
    faulty._router.subscriber_hops = lambda advertisement: []  # type: ignore[method-assign]
    faulty._router.route = lambda routing: []  # type: ignore[method-assign]


def subscribe_all(network: BrokerNetwork) -> None:
    network.client("P", "B1", 0, "publisher")
    reader = network.client("R", "B3", 1)
    network.run(1)
    reader.subscribe(Label(TOPIC), network.now)
    network.touch("R")
    network.run(3)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_new_replica_waits_for_clients_that_a_single_sibling_knows(profile: Profile) -> None:
    """Of the two siblings one is Byzantine: it reports no subscribers and knows no clients."""
    network = BrokerNetwork(profile, client=FRESH)
    subscribe_all(network)
    faulty = network.broker("B3.1")
    nothing_wanted(faulty)
    faulty._send_all_claims = lambda key, node: None  # type: ignore[method-assign]
    until = network.now + 12_000_000
    network.wires[Address("R")] = lambda frame, source: (
        None if frame.destination == "B3.4" and network.now < until else frame
    )
    network.redeploy(with_replicas(network.overlay.verify(OPERATOR.public), "B3", [1, 2, 4]), "B2.3", ["B3.4"])
    publish(network, 14)
    network.run(40)
    assert sorted(int(body) for *_, body in network.heard) == list(range(14))


def test_a_new_replica_waits_for_the_missing_vote_of_a_claim() -> None:
    """An honest replica of the next node connects late; of the two that have answered one is Byzantine, and reported
    nothing."""
    network = BrokerNetwork("hardened", client=FRESH)
    subscribe_all(network)
    nothing_wanted(network.broker("B2.1"))
    network.broker("B3.1")._send_all_claims = lambda key, node: None  # type: ignore[method-assign]
    until = network.now + 10_000_000
    network.wires[Address("B3.2")] = lambda frame, source: (
        None if frame.destination == "B2.4" and network.now < until else frame
    )
    network.redeploy(with_replicas(network.overlay.verify(OPERATOR.public), "B2", [1, 2, 4]), "B2.3", ["B2.4"])
    publish(network, 14)
    network.run(40)
    assert sorted(int(body) for *_, body in network.heard) == list(range(14))


def test_a_replica_of_an_ended_scheme_counts_as_unacknowledged_and_nothing_breaks() -> None:
    gone = SimpleNamespace(replica_keys=ReplicaKeys(nodes=4))
    ways = BrokerRoutingView(gone, SimpleNamespace(), SimpleNamespace(), b"me")  # type: ignore[arg-type]
    assert ways.is_unacknowledged(ReplicaId(Scheme(bytes(16), 1, 3), 1), RoutingCopied(1))


def test_a_repeated_state_request_before_the_answer_is_answered_once() -> None:
    network = BrokerNetwork("hardened")
    subscribe_all(network)
    network.wires[Address("B2.1")] = lambda frame, source: None if frame.destination == "B3.1" else frame
    asked, answering = network.broker("B2.1"), network.broker("B3.1")
    network.run(0.1)
    for _ in range(5):
        asked._on_replica_message(CopyRouting(1), answering.key, network.now)
    assert answering.key in asked._links.lagging_replicas()
    assert asked.sizes()["queued each"] <= len(asked._router.claims_for(node_id("B3"))) + 1

"""Killed and restarted brokers, breaking streams, joining and leaving replicas: nothing is lost or duplicated."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from support import broker_keyrings
from support.broker_keyrings import OPERATOR, TOPIC
from support.broker_network import BrokerNetwork
from veilcast.authority.topic_record import Profile
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica
from veilcast.machine import Address, Publication
from veilcast.topics import Label

PROFILES: list[Profile] = ["paper", "hardened"]


class RestartNetwork:
    """One client publishes and two subscribe; `check` asserts that both have everything, once."""

    def __init__(self, profile: Profile, seed: int = 1) -> None:
        self.network = BrokerNetwork(profile, seed=seed)
        self.publisher = self.network.client("P", "B1", 0, "publisher")
        self.said: list[bytes] = []
        self.readers = {"R": self.network.client("R", "B3", 1), "S": self.network.client("S", "B2", 2)}
        self.network.run(1)
        for name, reader in self.readers.items():
            reader.subscribe(Label(TOPIC), self.network.now)
            self.network.touch(name)
        self.network.run(4)
        assert len(self.network.stands) == 2

    def publish(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.said.append(f"news {len(self.said)}".encode())
            self.publisher.publish(Publication((("topic", TOPIC),), self.said[-1]), self.network.now)
            self.network.touch("P")
            self.network.run(seconds / count)

    def check(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            if not self.publisher.sizes()["pending"]:
                break
            self.network.run(1)
        assert self.publisher.sizes()["pending"] == 0
        expected = Counter((reader, body) for reader in self.readers for body in self.said)
        assert Counter((reader, body) for reader, _, body in self.network.heard) == expected
        assert not any(broker.suspects() for broker in self.network.brokers()), "to be killed is no lie"


@pytest.mark.parametrize("profile", PROFILES)
def test_one_replica_of_each_node_may_be_down(profile: Profile) -> None:
    restarts = RestartNetwork(profile)
    for name in ("B1.2", "B2.1", "B3.3"):
        restarts.network.kill(name)
    restarts.publish(5, 2)
    restarts.check(60)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_killed_broker_restarts_empty_and_serves_again(profile: Profile) -> None:
    restarts = RestartNetwork(profile)
    restarts.publish(3, 2)
    restarts.network.kill("B2.1")
    restarts.publish(3, 2)
    restarts.network.restart("B2.1")
    assert not restarts.network.broker("B2.1").has_routing_state
    restarts.network.run(5)
    revived = restarts.network.broker("B2.1")
    assert revived.has_routing_state
    assert revived.sizes()["claims"] == restarts.network.broker("B2.2").sizes()["claims"]
    restarts.publish(3, 2)
    restarts.network.run(15)  # So long it keeps silent on keys.
    restarts.network.kill("B2.3")
    restarts.publish(3, 2)
    restarts.check(60)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, 2])
def test_frequently_breaking_streams_lose_nothing(profile: Profile, seed: int) -> None:
    restarts = RestartNetwork(profile, seed)
    for _ in range(20):
        restarts.publish(1, 0.2)
        for stream in restarts.network.rng.sample(sorted(map(sorted, restarts.network.streams)), 3):
            restarts.network.cut(*stream)
    restarts.check(120)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_restarted_subscriber_gets_its_unread_notifications(profile: Profile) -> None:
    restarts = RestartNetwork(profile)
    restarts.publish(2, 2)
    restarts.network.kill("R")
    restarts.publish(3, 2)
    restarts.network.restart("R")
    reader = restarts.network.places[Address("R")].machine
    reader.subscribe(Label(TOPIC), restarts.network.now)
    restarts.network.touch("R")
    restarts.check(120)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_killed_publisher_publishes_its_stored_publications(profile: Profile) -> None:
    restarts = RestartNetwork(profile)
    restarts.publish(2, 0.001)
    restarts.network.kill("P")
    restarts.network.run(2)
    restarts.network.restart("P")
    restarts.publisher = restarts.network.places[Address("P")].machine
    restarts.check(60)


@pytest.mark.parametrize("profile", PROFILES)
def test_replicas_join_and_leave_during_traffic(profile: Profile) -> None:
    """Two more join B2 while publications flow; then three others leave, a Byzantine one possibly among them."""
    restarts = RestartNetwork(profile)
    network = restarts.network
    overlay = network.overlay.verify(OPERATOR.public)
    restarts.publish(3, 1)
    grown = _with_replicas(overlay, "B2", (1, 2, 3, 4, 5))
    network.redeploy(grown, "B1.1", ["B2.4", "B2.5"])
    restarts.publish(10, 20)
    for broker in network.brokers():
        assert broker.signed.verify(OPERATOR.public) == grown
    assert network.broker("B2.4").has_routing_state
    network.redeploy(_with_replicas(grown, "B2", (3, 4, 5)), "B3.2")
    restarts.publish(10, 90)
    assert network.broker("B2.1").has_left
    assert network.broker("B2.2").has_left
    restarts.publish(3, 5)
    restarts.check(60)


def _with_replicas(overlay: BrokerOverlay, name: str, indices: tuple[int, ...]) -> BrokerOverlay:
    node = overlay.node(name)
    replicas = tuple(
        Replica(broker_keyrings.signing(name, index).public, f"{name}.{index}", f"{name}.{index}") for index in indices
    )
    changed = NodeEntry(name, node.version + 1, replicas)
    nodes = tuple(changed if other.name == name else other for other in overlay.nodes)
    return msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=nodes)

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


class Paper:
    """One client publishes and two subscribe; `check` asserts that both have everything, once."""

    def __init__(self, profile: Profile, seed: int = 1) -> None:
        self.town = BrokerNetwork(profile, seed=seed)
        self.publisher = self.town.client("P", "B1", 0, "publisher")
        self.said: list[bytes] = []
        self.readers = {"R": self.town.client("R", "B3", 1), "S": self.town.client("S", "B2", 2)}
        self.town.run(1)
        for name, reader in self.readers.items():
            reader.subscribe(Label(TOPIC), self.town.now)
            self.town.touch(name)
        self.town.run(4)
        assert len(self.town.stands) == 2

    def publish(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.said.append(f"news {len(self.said)}".encode())
            self.publisher.publish(Publication((("topic", TOPIC),), self.said[-1]), self.town.now)
            self.town.touch("P")
            self.town.run(seconds / count)

    def check(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            if not self.publisher.sizes()["pending"]:
                break
            self.town.run(1)
        assert self.publisher.sizes()["pending"] == 0
        expected = Counter((reader, body) for reader in self.readers for body in self.said)
        assert Counter((reader, body) for reader, _, body in self.town.heard) == expected
        assert not any(broker.suspects() for broker in self.town.brokers()), "to be killed is no lie"


@pytest.mark.parametrize("profile", PROFILES)
def test_one_replica_of_each_node_may_be_down(profile: Profile) -> None:
    paper = Paper(profile)
    for name in ("B1.2", "B2.1", "B3.3"):
        paper.town.kill(name)
    paper.publish(5, 2)
    paper.check(60)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_killed_broker_restarts_empty_and_serves_again(profile: Profile) -> None:
    paper = Paper(profile)
    paper.publish(3, 2)
    paper.town.kill("B2.1")
    paper.publish(3, 2)
    paper.town.restart("B2.1")
    assert not paper.town.broker("B2.1").complete
    paper.town.run(5)
    revived = paper.town.broker("B2.1")
    assert revived.complete
    assert revived.sizes()["claims"] == paper.town.broker("B2.2").sizes()["claims"]
    paper.publish(3, 2)
    paper.town.run(15)  # So long it keeps silent on keys.
    paper.town.kill("B2.3")
    paper.publish(3, 2)
    paper.check(60)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [0, 2])
def test_frequently_breaking_streams_lose_nothing(profile: Profile, seed: int) -> None:
    paper = Paper(profile, seed)
    for _ in range(20):
        paper.publish(1, 0.2)
        for stream in paper.town.rng.sample(sorted(map(sorted, paper.town.streams)), 3):
            paper.town.cut(*stream)
    paper.check(120)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_restarted_subscriber_gets_its_unread_notifications(profile: Profile) -> None:
    paper = Paper(profile)
    paper.publish(2, 2)
    paper.town.kill("R")
    paper.publish(3, 2)
    paper.town.restart("R")
    reader = paper.town.places[Address("R")].machine
    reader.subscribe(Label(TOPIC), paper.town.now)
    paper.town.touch("R")
    paper.check(120)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_killed_publisher_publishes_its_stored_publications(profile: Profile) -> None:
    paper = Paper(profile)
    paper.publish(2, 0.001)
    paper.town.kill("P")
    paper.town.run(2)
    paper.town.restart("P")
    paper.publisher = paper.town.places[Address("P")].machine
    paper.check(60)


@pytest.mark.parametrize("profile", PROFILES)
def test_replicas_join_and_leave_during_traffic(profile: Profile) -> None:
    """Two more join B2 while publications flow; then three others leave, a Byzantine one possibly among them."""
    paper = Paper(profile)
    town = paper.town
    overlay = town.overlay.verify(OPERATOR.public)
    paper.publish(3, 1)
    grown = _changed(overlay, "B2", (1, 2, 3, 4, 5))
    town.redeploy(grown, "B1.1", ["B2.4", "B2.5"])
    paper.publish(10, 20)
    for broker in town.brokers():
        assert broker.signed.verify(OPERATOR.public) == grown
    assert town.broker("B2.4").complete
    town.redeploy(_changed(grown, "B2", (3, 4, 5)), "B3.2")
    paper.publish(10, 90)
    assert town.broker("B2.1").left
    assert town.broker("B2.2").left
    paper.publish(3, 5)
    paper.check(60)


def _changed(overlay: BrokerOverlay, name: str, indices: tuple[int, ...]) -> BrokerOverlay:
    node = overlay.node(name)
    replicas = tuple(
        Replica(broker_keyrings.signing(name, index).public, f"{name}.{index}", f"{name}.{index}") for index in indices
    )
    changed = NodeEntry(name, node.version + 1, replicas)
    nodes = tuple(changed if other.name == name else other for other in overlay.nodes)
    return msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=nodes)

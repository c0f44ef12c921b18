"""A running overlay is redeployed: publications flow while a node grows and shrinks, and one of its replicas is
Byzantine."""

from __future__ import annotations

from collections import Counter
from itertools import product

import msgspec
import pytest

from support.broker_keyrings import OPERATOR, TOPIC, signing
from support.broker_network import BrokerNetwork, with_replicas
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.overlay import sign_overlay
from veilcast.errors import StaleError
from veilcast.machine import Address, Publication
from veilcast.topics import Label
from veilcast.wire.brokers import OverlayOrder, VersionAdopted

BROKER = BrokerConfig(prepare_us=4_000_000, settle_us=1_000_000, linger_us=8_000_000, copy_us=300_000, bound_us=100_000)
CLIENT = BrokerClientConfig(prepare_us=3_000_000, linger_us=8_000_000)


def redeploy(profile: Profile, node: str, faulty: str, count: int) -> None:
    """Grow the node by two after some publications, and remove two after more; `liar` is silent."""
    network = BrokerNetwork(profile, broker=BROKER, client=CLIENT)
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", "B3", 1)
    network.run(1)
    reader.subscribe(Label(TOPIC), network.now)
    network.touch("R")
    network.run(3)
    if faulty:
        network.wires[Address(f"{node}.{faulty}")] = lambda frame, source: None
    base = network.overlay.verify(OPERATOR.public)
    grown = with_replicas(base, node, [1, 2, 3, 4, 5])
    bodies = [b"%d" % number for number in range(count)]
    for number, body in enumerate(bodies):
        publisher.publish(Publication((("topic", TOPIC),), body), network.now)
        network.touch("P")
        network.run(20 / count)
        if number == count // 6:
            network.redeploy(grown, "B2.3", [f"{node}.4", f"{node}.5"])
        if number == count // 2:
            network.redeploy(with_replicas(grown, node, [1, 3, 5]), "B1.3")
    network.run(60)
    assert Counter(body for _, _, body in network.heard) == Counter(bodies), "each once"
    assert publisher.sizes()["pending"] == 0, "and settled"
    faulty_set = {signing(node, int(faulty)).public} if faulty else set()
    for broker in network.brokers():
        if broker.key not in faulty_set:
            assert broker.has_left == (broker.address in (f"{node}.2", f"{node}.4"))
            assert broker.signed.verify(OPERATOR.public).version == base.version + 2
        assert not broker.suspects(), "silence proves nothing"


@pytest.mark.parametrize(
    ("profile", "node", "faulty"), [("hardened", "B2", "1"), ("hardened", "B3", "2"), ("paper", "B1", "1")]
)
def test_nothing_is_lost_or_duplicated_while_a_node_grows_and_shrinks(profile: Profile, node: str, faulty: str) -> None:
    redeploy(profile, node, faulty, 40)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_leaving_replica_is_gone_long_before_the_deadline(profile: Profile) -> None:
    """It no longer gets messages under the new scheme, and does not wait for them."""
    network = BrokerNetwork(profile, replicas=5)
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", "B3", 1)
    network.run(1)
    reader.subscribe(Label(TOPIC), network.now)
    network.touch("R")
    network.run(3)
    network.redeploy(with_replicas(network.overlay.verify(OPERATOR.public), "B2", [1, 2, 3]), "B3.2")
    for number in range(20):
        publisher.publish(Publication((("topic", TOPIC),), b"%d" % number), network.now)
        network.touch("P")
        network.run(1)
    assert network.broker("B2.4").has_left
    assert network.broker("B2.5").has_left
    assert len(network.heard) == 20


def test_a_replica_cannot_exclude_others() -> None:
    """It sends what only the operator may send, old orders again, and that it and all others have left."""
    network = BrokerNetwork("hardened", broker=BROKER, client=CLIENT)
    network.run(1)
    old, base = network.overlay, network.overlay.verify(OPERATOR.public)
    network.redeploy(with_replicas(base, "B2", [1, 2, 3, 4, 5]), "B1.1", ["B2.4", "B2.5"])
    network.run(10)
    now = network.overlay.verify(OPERATOR.public)
    evil = network.broker("B2.1")
    alone = sign_overlay(with_replicas(now, "B2", [1, 6, 7]), evil.signing)
    before = {broker.address: set(broker._deployment.linked_replicas()) for broker in network.brokers()}
    for message in (
        OverlayOrder(alone.encode()),
        OverlayOrder(old.encode()),
        VersionAdopted(now.version + 7, True),
        VersionAdopted(0, False),
    ):
        for key in evil._deployment.linked_replicas():
            evil._links.send_to_replica(key, message)
        network.touch("B2.1")
        network.run(5)
    for broker in network.brokers():
        assert broker.signed == network.overlay
        assert set(broker._deployment.linked_replicas()) == before[broker.address]
        assert broker.has_routing_state
        if broker is not evil:
            assert broker.refused["ForgedError"] == broker.refused["StaleError"] == 1


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("profile", "node", "faulty"), list(product(["hardened", "paper"], ["B1", "B2", "B3"], ["", "1", "2"]))
)
def test_nothing_of_two_hundred_is_lost_wherever_the_change_is_and_whichever_replica_is_byzantine(
    profile: Profile, node: str, faulty: str
) -> None:
    redeploy(profile, node, faulty, 200)


def test_an_order_for_another_overlay_of_the_operator_has_no_effect() -> None:
    """It has the same nodes and links, and newer schemes: perhaps an earlier run of this overlay."""
    network = BrokerNetwork("hardened", broker=BROKER, client=CLIENT)
    here = network.overlay.verify(OPERATOR.public)
    replaced = with_replicas(here, "B2", [4, 5, 6])
    other = OverlayOrder(
        sign_overlay(msgspec.structs.replace(replaced, version=9, origin=b"o" * 16), OPERATOR).encode()
    )
    with pytest.raises(StaleError):
        network.broker("B2.1").accept_order(other.order, network.now)
    network.run(20)
    assert not any(broker.has_left for broker in network.brokers())
    network.broker("B2.1").accept_order(sign_overlay(replaced, OPERATOR).encode(), network.now)


def test_no_replica_leaves_for_successors_that_never_join() -> None:
    network = BrokerNetwork("hardened", broker=BROKER, client=CLIENT)
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", "B3", 1)
    network.run(1)
    reader.subscribe(Label(TOPIC), network.now)
    network.touch("R")
    network.run(3)
    network.redeploy(with_replicas(network.overlay.verify(OPERATOR.public), "B2", [1, 4, 5]), "B1.1", [])
    network.run(60)
    assert not any(broker.has_left for broker in network.brokers())
    publisher.publish(Publication((("topic", TOPIC),), b"x"), network.now)
    network.touch("P")
    network.run(10)
    assert [body for *_, body in network.heard] == [b"x"]


def test_an_order_for_its_node_clears_no_proven_replica() -> None:
    network = BrokerNetwork("hardened", broker=BROKER, client=CLIENT)
    network.run(1)
    overlay, neighbour = network.overlay.verify(OPERATOR.public), network.broker("B1.1")
    faulty = overlay.node("B2").replica_id(signing("B2", 1).public)
    assert faulty is not None
    neighbour._evidence.record(faulty, FaultReason.TWO_DEALINGS)
    newer = with_replicas(overlay, "B2", [2, 3, 1])
    neighbour.accept_order(sign_overlay(newer, OPERATOR).encode(), network.now)
    network.run(5)
    assert neighbour.suspects() == [ReplicaId(newer.node("B2").scheme, 3)]

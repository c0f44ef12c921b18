"""A running overlay is redeployed: two hundred publications while a node grows and shrinks, and one replica lies."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from veilcast.authority.record import Profile
from veilcast.brokers.config import BrokerConfig, ClientConfig
from veilcast.brokers.overlay import NodeEntry, Overlay, Replica, SignedOverlay, sign_overlay
from veilcast.machine import Address, Frame, Publication
from veilcast.topics import Label

sys.path.insert(0, str(Path(__file__).parent))
from broker_grants import OPERATOR, TOPIC, signing
from overlay_town import Town

BROKER = BrokerConfig(
    prepare_us=3_000_000, settle_us=1_000_000, linger_us=8_000_000, copy_us=1_000_000, bound_us=100_000
)
CLIENT = ClientConfig(prepare_us=3_000_000, linger_us=8_000_000)


def changed(town: Town, node: str, indexes: list[int]) -> SignedOverlay:
    """The overlay with these replicas in that node."""
    overlay: Overlay = town.overlay.verify(OPERATOR.public)
    replicas = tuple(Replica(signing(node, index).public, f"{node}.{index}", f"{node}.{index}") for index in indexes)
    nodes = tuple(NodeEntry(node, each.version + 1, replicas) if each.name == node else each for each in overlay.nodes)
    return sign_overlay(msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=nodes), OPERATOR)


def order(town: Town, by: str, node: str, indexes: list[int]) -> None:
    """Handed to one broker; those who come are started with it."""
    town.overlay = changed(town, node, indexes)
    for index in indexes:
        if Address(f"{node}.{index}") not in town.places:
            town._add(f"{node}.{index}", lambda index=index: town._broker(node, index))
    town.broker(by).order(town.overlay.encode(), town.now)
    town.touch(by)


def mute(frame: Frame, source: Address) -> Frame | None:
    return None


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize("node", ["B2", "B1", "B3"])
@pytest.mark.parametrize("liar", ["", "1", "2"])
def test_nothing_is_lost_or_twice_while_a_node_grows_and_shrinks(profile: Profile, node: str, liar: str) -> None:
    town = Town(profile, broker=BROKER, client=CLIENT)
    publisher, reader = town.client("P", "B1", 0, "publisher"), town.client("R", "B3", 1)
    town.run(1)
    reader.subscribe(Label(TOPIC), town.now)
    town.touch("R")
    town.run(3)
    if liar:
        town.wires[Address(f"{node}.{liar}")] = mute
    bodies = [b"%d" % number for number in range(200)]
    for number, body in enumerate(bodies):
        publisher.publish(Publication((("topic", TOPIC),), body), town.now)
        town.touch("P")
        town.run(0.1)
        if number == 30:
            order(town, "B2.3", node, [1, 2, 3, 4, 5])
        if number == 120:
            order(town, "B1.3", node, [1, 3, 5])
    town.run(60)
    heard = Counter(body for _, _, body in town.heard)
    assert heard == Counter(bodies)
    assert publisher.sizes()["pending"] == 0
    lying = {signing(node, int(liar)).public} if liar else set()
    for broker in town.brokers():
        named = {broker._deployment.roster.key(place) for place in broker.suspects()}
        assert named <= lying, "nobody else is named"
        gone = broker.address in (f"{node}.2", f"{node}.4")
        assert broker.left == gone or broker.address in town.wires

"""The number of shares of a key that running brokers deliver: at most p r^h, at least p (r - f)^h (P4, Solution
Analysis).

An overlay is a tree, so it has one path; p disjoint paths are those of p overlays.
"""

from __future__ import annotations

import pytest

from support.broker_keyrings import OPERATOR, TOPIC, keys_of
from support.broker_network import BrokerNetwork
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys import share_counts
from veilcast.brokers.keys.paper_split import SplitKeyCollector, SplitShare, TrailVerifier
from veilcast.brokers.keys.scheme import KeyAttempt, majority
from veilcast.machine import Address, Frame, Publication
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.brokers import LastShare, SessionItem

CHAINS = {2: (("B1", "B2"),), 3: (("B1", "B2"), ("B2", "B3")), 4: (("B1", "B2"), ("B2", "B3"), ("B3", "B4"))}


def brought(hops: int, byzantine: int = 0, seed: int = 1) -> tuple[BrokerNetwork, list[SplitShare]]:
    """The shares of one key that reach a subscriber, and the overlay."""
    network = BrokerNetwork("paper", CHAINS[hops], seed=seed, client=BrokerClientConfig(refresh_messages=1))
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", f"B{hops}", 1)
    network.run(1)
    reader.subscribe(Label(TOPIC), network.now)
    network.touch("R")
    network.run(4)
    parcels: list[SplitShare] = []

    def look(frame: Frame, source: Address) -> Frame:
        message = decode(frame.data)
        if isinstance(message, SessionItem) and isinstance(share := decode(message.cargo), LastShare):
            parcels.append(SplitShare.decode(share.share))
        return frame

    for address in network.places:
        node, _, index = address.partition(".")
        if index and int(index) <= byzantine:
            network.wires[address] = lambda frame, source: None
        elif node == f"B{hops}":
            network.wires[address] = look
    publisher.publish(Publication((("topic", TOPIC),), b"news"), network.now)
    network.touch("P")
    network.run(2)
    assert [body for _, _, body in network.heard] == [b"news"]
    return network, parcels


@pytest.mark.parametrize("hops", [2, 3, 4])
@pytest.mark.parametrize("byzantine", [0, 1])
def test_the_computed_number_of_shares_reaches_a_subscriber(hops: int, byzantine: int) -> None:
    _, parcels = brought(hops, byzantine)
    sizes, faulty_set = [3] * hops, [byzantine] * hops
    assert len({parcel.path for parcel in parcels}) == len(parcels)
    assert len(parcels) == share_counts.shares_for_certain(sizes, faulty_set)
    assert len(parcels) <= share_counts.shares_received(sizes)
    assert len(parcels) >= share_counts.shares_needed(sizes)
    if not byzantine:
        assert len(parcels) == 3**hops


def test_the_printed_minimum_is_below_the_threshold() -> None:
    assert (
        share_counts.shares_for_certain_as_printed([3], [1])
        == 1
        < majority(3)
        == share_counts.shares_for_certain([3], [1])
    )


def test_two_overlays_are_two_disjoint_paths() -> None:
    """They share nothing but the subscriber, which gets p times as many shares; either path alone is enough."""
    (one, first), (other, second) = brought(2), brought(3, byzantine=1, seed=2)
    assert len(first) + len(second) == share_counts.shares_received([3, 3]) + share_counts.shares_for_certain(
        [3] * 3, [1] * 3
    )
    publisher = keys_of(0, "paper").certificate
    assert publisher is not None
    for network, parcels in ((one, first), (other, second)):
        roster = network.broker("B1.2")._deployment.replica_keys
        origin = KeyAttempt(parcels[0].key_attempt.key)
        gathering = SplitKeyCollector(origin, TrailVerifier(publisher.leaf.subject, roster))
        for parcel in parcels:
            gathering.add(parcel, parcel.holder)
        assert gathering.key is not None
        assert not gathering.faulty
    assert one.overlay.verify(OPERATOR.public) != other.overlay.verify(OPERATOR.public)

"""A tree without its directory: nodes go on with their current listing, and tell their owners."""

from __future__ import annotations

from support.tree_network import DIRECTORY, TreeNetwork
from veilcast.node.tree import hindrances

TOLD = f"no way to the directory at {DIRECTORY}: it does not answer"


def test_a_node_reports_an_unreachable_directory_until_it_is_back() -> None:
    network = TreeNetwork(3)
    network.run(10)
    node = network.machine(network.names[0])
    assert hindrances(node, network.now) == []
    network.kill(DIRECTORY)
    network.run(30)
    for _ in range(20):  # Between two calls, too.
        network.run(0.7)
        assert hindrances(node, network.now) == [TOLD]
    network.start(DIRECTORY)
    network.run(20)
    assert hindrances(node, network.now) == []


def test_a_directory_that_accepts_streams_and_stays_silent_is_reported() -> None:
    network = TreeNetwork(3)
    network.run(10)
    node, directory = network.machine(network.names[0]), network.machine(DIRECTORY)
    directory.receive = lambda data, source, now: None
    network.run(40)
    assert hindrances(node, network.now) == [TOLD]


def test_a_publication_without_a_listing_reports_that_it_waits_for_one() -> None:
    network = TreeNetwork(2)
    network.kill(DIRECTORY)
    network.publish(network.names[0], b"early")
    network.run(5)
    delay = network.machine(network.names[0]).delay(network.now)
    assert (delay.reason, delay.until_us) == ("the directory has told of no other node", None)


def test_a_publication_that_no_node_accepts_reports_it() -> None:
    network = TreeNetwork(6)
    network.run(20)
    for name in network.names[1:]:
        network.kill(name)
    network.publish(network.names[0], b"alone")
    network.run(30)
    delay = network.machine(network.names[0]).delay(network.now)
    assert (delay.reason, delay.until_us) == ("none of the nodes that were asked to pass it on has answered", None)

"""A tree whose directory is gone: its nodes go on with the listing that they have, and tell their owners."""

from __future__ import annotations

from support.tree_network import DIRECTORY, TreeNetwork
from veilcast.node.tree_member import hindrances

TOLD = f"no way to the directory at {DIRECTORY}: it does not answer"


def test_a_node_tells_that_its_directory_is_gone_until_it_is_back() -> None:
    grove = TreeNetwork(3)
    grove.run(10)
    node = grove.machine(grove.names[0])
    assert hindrances(node, grove.now) == []
    grove.kill(DIRECTORY)
    grove.run(30)
    for _ in range(20):  # Between two calls, too.
        grove.run(0.7)
        assert hindrances(node, grove.now) == [TOLD]
    grove.start(DIRECTORY)
    grove.run(20)
    assert hindrances(node, grove.now) == []


def test_a_directory_that_takes_calls_and_says_nothing_is_told_too() -> None:
    grove = TreeNetwork(3)
    grove.run(10)
    node, directory = grove.machine(grove.names[0]), grove.machine(DIRECTORY)
    directory.receive = lambda data, source, now: None
    grove.run(40)
    assert hindrances(node, grove.now) == [TOLD]


def test_a_publication_of_a_node_that_has_no_listing_says_that_it_waits_for_one() -> None:
    grove = TreeNetwork(2)
    grove.kill(DIRECTORY)
    grove.publish(grove.names[0], b"early")
    grove.run(5)
    delay = grove.machine(grove.names[0]).delay(grove.now)
    assert (delay.reason, delay.until_us) == ("the directory has told of no other node", None)


def test_a_publication_that_no_node_takes_says_so() -> None:
    grove = TreeNetwork(6)
    grove.run(20)
    for name in grove.names[1:]:
        grove.kill(name)
    grove.publish(grove.names[0], b"alone")
    grove.run(30)
    delay = grove.machine(grove.names[0]).delay(grove.now)
    assert (delay.reason, delay.until_us) == ("none of the nodes that were asked to pass it on has answered", None)

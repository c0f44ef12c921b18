"""The tail of a guard chain: home stands anywhere on it and forwards like a guard, and nothing that is read is lost."""

from __future__ import annotations

import msgspec
import pytest

from support.tree_network import EPOCH_US, QUICK_CONFIG, SECOND, TOPIC, TreeNetwork, keyring_of, name_of, profile_of
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.topics import Label
from veilcast.tree.config import TreeConfig
from veilcast.tree.hardened import _draw_stand
from veilcast.tree.instruction_bundles import Recipient
from veilcast.tree.live_tree import LiveTree
from veilcast.wire.tree import ForwardPublication

ALL = Label(TOPIC)
N0, N1 = "n0:1", "n1:1"
TAILED = msgspec.structs.replace(QUICK_CONFIG, chain=2, tail=2)


def recipient(number: int) -> Recipient:
    return Recipient(b"%016d" % number, bytes(32))


def test_instructions_lead_from_the_tree_to_home_and_from_home_to_a_node_that_drops_everything() -> None:
    nodes = [recipient(number) for number in range(30)]
    tree = LiveTree(Secret(b"s"), nodes, b"h" * 16, b"e" * 16, nodes[:2], 3, Secret(b"c"), 0, nodes[2:5])
    assert (list(tree.chain), list(tree.tail)) == ([-1, -2], [-3, -4, -5])
    at = {tree.entry_at(stop): stop for stop in (*tree.chain, *tree.tail, *tree.stops)}
    told = {stop: tree.instruction(stop) for stop in at.values()}
    assert [stop for stop, instruction in told.items() if instruction.parent == b"h" * 16] == [-1]
    for stop in tree.tail:
        following = max(stop - 1, -5)
        assert (told[stop].parent, at[told[stop].parent_entry]) == (tree.node(following), following)
    assert tree.path(-5) == [-5]
    assert tree.path(-3) == [-3, -4, -5]
    assert tree.children(-4) == [-3]
    assert tree.children(-3) == [], "home forwards to it"
    assert tree.replace_guard(-4, recipient(99)) == [-4, -3]
    assert tree.instruction(-3).parent == recipient(99).node
    assert not any(stop in tree.tail for each in tree.stops for stop in tree.path(each))


def standing() -> tuple[TreeNetwork, int]:
    """A network in which n0 has an active subscription, and the number of guards before n0."""
    network = TreeNetwork(9, config=TAILED)
    network.run(6)
    network.subscribe(N0)
    network.until(lambda: network.stands(N0), 30)
    return network, _draw_stand(keyring_of(0, "hardened").membership.link, TAILED)


def chain_of(network: TreeNetwork) -> list[str]:
    return [network.called(node) for node in profile_of(network, N0)._guards._chain]


def forwarded_by(network: TreeNetwork, message: bytes) -> list[str]:
    """The nodes that the message came to, in order, as a copy for one entry; a repeated one included."""
    return [
        where for where, _, seen in network.seen if isinstance(seen, ForwardPublication) and seen.message == message
    ]


def test_each_notification_is_delivered_once_and_goes_on_behind_its_subscriber() -> None:
    network, stand = standing()
    before, behind = chain_of(network)[:stand], chain_of(network)[stand:]
    assert (len(before) + len(behind), len(behind) > 0) == (5, True)
    network.seen.clear()
    network.publish(N1, b"here")
    network.run(20)
    assert network.heard_by(N0) == [b"here"]
    bodies: dict[bytes, list[str]] = {}
    for where, _, seen in network.seen:
        if isinstance(seen, ForwardPublication):
            bodies.setdefault(seen.message, []).append(where)
    full = [way for way in bodies.values() if N0 in way and way[-1] == behind[-1]]
    assert full
    for way in full:
        place = way.index(N0)
        assert way[place - 1] == before[0]
        assert way[place + 1 : place + 1 + len(behind)] == behind


def test_a_restarted_subscriber_stands_at_the_same_place_and_forwards_before_it_has_trees() -> None:
    network, stand = standing()
    chain = chain_of(network)
    network.kill(N0)
    network.run(2)
    network.start(N0)
    network.until(lambda: network.stands(N0), 40)
    assert chain_of(network) == chain
    network.publish(N1, b"again")
    network.run(20)
    assert network.heard_by(N0) == [b"again"]
    tree = profile_of(network, N0)._subscriber.current_trees(network.now)[0].tree
    assert len(tree.chain) == stand


def test_trees_of_the_next_epoch_have_the_same_chain_and_tail() -> None:
    network, _ = standing()
    chain = chain_of(network)
    network.run(EPOCH_US / SECOND)
    network.publish(N1, b"later")
    network.run(20)
    assert network.heard_by(N0) == [b"later"]
    assert chain_of(network) == chain


def test_a_node_of_the_tail_that_leaves_is_replaced() -> None:
    network, stand = standing()
    gone = chain_of(network)[stand]
    network.kill(gone)
    network.until(lambda: gone not in chain_of(network), 200)
    network.publish(N1 if gone != N1 else "n2:1", b"here")
    network.run(30)
    assert network.heard_by(N0) == [b"here"]
    assert len(chain_of(network)) == 5


def test_a_network_too_small_for_a_tail_has_none() -> None:
    network = TreeNetwork(5, config=TAILED)
    network.run(6)
    network.subscribe(N0)
    network.until(lambda: network.stands(N0), 30)
    network.publish(N1, b"here")
    network.run(10)
    assert network.heard_by(N0) == [b"here"]
    assert len(profile_of(network, N0)._subscriber.current_trees(network.now)[0].tree.tail) == 0


def test_places_are_drawn_evenly() -> None:
    places = [_draw_stand(keyring_of(number, "hardened").membership.link, TAILED) for number in range(60)]
    assert set(places) == {1, 2, 3, 4}
    assert all(places.count(each) >= 6 for each in set(places))
    assert _draw_stand(keyring_of(0, "hardened").membership.link, QUICK_CONFIG) == 0


def test_chain_and_tail_are_bounded_together() -> None:
    with pytest.raises(ConfigError, match="tail"):
        TreeConfig(chain=10, tail=7)
    assert name_of(0, "hardened") != name_of(1, "hardened")

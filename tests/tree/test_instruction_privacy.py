"""What the instructions of a tree reveal to nodes that pass them on, open them, or store them."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest

from support.tree_network import EPOCH_US, QUICK_CONFIG, SECOND, TOPIC, TreeNetwork, keyring_of
from veilcast.core.subscriptions import SharedInterest
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.noise import Keypair
from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.sim.rng import SeededEntropy
from veilcast.topics import All, Label, Range
from veilcast.tree.delivery_tags import DeliveryTags
from veilcast.tree.instruction_bundles import BundleLayer, Instruction, Recipient, open_layer, wrap_group
from veilcast.tree.live_tree import LiveTree
from veilcast.tree.membership_proof import MembershipProver, bundle_context
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad, unpad
from veilcast.wire.tree import Install


def opened(network: TreeNetwork, since: int = 0) -> list[tuple[str, str, Install, BundleLayer]]:
    """Every instruction that arrived: its recipient, its stream, the message, and its content."""
    boxes = {
        str(name): Keypair(keyring_of(number, "hardened").membership.link) for number, name in enumerate(network.names)
    }
    return [
        (name, source, install, open_layer(boxes[name], unpad(install.sealed), context=_context(install)))
        for name, source, install in network.seen[since:]
        if isinstance(install, Install)
    ]


def inject(network: TreeNetwork, name: str, message: Install) -> None:
    """Send on the stream of an outsider."""
    network.do(name, lambda node, now: node.receive(encode(message), Address("in:stranger"), now))


def _context(install: Install) -> bytes:
    return bundle_context(install.until_us, install.groups)


def test_the_position_of_a_subscriber_in_its_group_is_random() -> None:
    """Nodes that pass instructions on would recognise a subscriber that is always last, or never first."""
    last, first = 0, 0
    for seed in range(12):
        network = TreeNetwork(5, seed=seed)
        network.run(4)
        network.subscribe("n0:1")
        network.run(3)
        home = network.machine("n0:1").name
        handed = [layer.children for _, _, _, layer in opened(network) if layer.children]
        last += sum(children[-1][0] == home for children in handed)
        first += not handed
    assert 0 < last < 8
    assert 0 < first < 8


def test_a_node_with_a_full_routing_table_can_still_subscribe() -> None:
    network = TreeNetwork(4, config=msgspec.structs.replace(QUICK_CONFIG, entries_max=1, chain=1))
    network.run(4)
    network.subscribe("n0:1")
    network.run(4)
    assert network.machine("n1:1").sizes()["entries"] == 1
    network.subscribe("n1:1", All(Label(TOPIC), Range("level", 1, 3)))
    network.run(4)
    assert network.machine("n1:1").sizes()["entries"] == 1


def test_repeated_instructions_are_not_passed_on_again() -> None:
    """Otherwise an adversary that repeats one message would make a whole group repeat it."""
    network = TreeNetwork(6)
    network.run(6)
    network.subscribe("n0:1")
    network.run(3)
    name, _, install, _ = next(each for each in opened(network) if each[3].children and each[0] != "n0:1")
    before = len(opened(network))
    for _ in range(10):
        inject(network, name, install)
    network.run(3)
    assert len(opened(network)) == before


def test_a_node_with_newer_instructions_still_passes_older_ones_on() -> None:
    network = TreeNetwork(4)
    network.run(6)
    rings = [keyring_of(number, "hardened") for number in (1, 2)]
    told = [Recipient(fingerprint(public_of(ring.membership.link)), public_of(ring.membership.link)) for ring in rings]
    says = [Instruction(bytes([number]) * 16, told[0].node, bytes(16)) for number in (1, 2)]
    later, groups = (network.now // EPOCH_US + 2) * EPOCH_US, ((bytes(16),),)

    def install(count: int, until_us: int) -> Install:
        bundle = wrap_group(
            told[:count], says[:count], 2, SeededEntropy(b"told"), context=bundle_context(until_us, groups)
        )
        return MembershipProver(rings[0]).prove(Install(7, until_us, groups, pad(bundle, INSTALL_BLOCK)))

    inject(network, "n1:1", install(1, later))
    inject(network, "n1:1", install(2, later - 1))
    network.run(2)
    assert [network.machine(name).sizes()["entries"] for name in ("n1:1", "n2:1")] == [1, 1]


RANGE = All(Label(TOPIC), Range("level", 1, 4))
"""Its cover is not a power of two, so it is padded."""


def chain_of(network: TreeNetwork, name: str, since: int = 0) -> dict[tuple[str, bytes], Install]:
    """The instructions of the guards on the chains to this node, by guard and token."""
    ordinary = {each[2].groups for each in opened(network) if each[3].children}
    return {
        (at, b"".join(msgspec.structs.astuple(layer.instruction))): install
        for at, _, install, layer in opened(network, since)
        if install.groups not in ordinary and at != name
    }


def test_a_guard_does_not_get_the_tags_of_the_tree_a_second_time() -> None:
    """A guard matches nothing for the tree that hangs from it, and nothing shows what it serves."""
    network = TreeNetwork(8)
    network.run(6)
    network.subscribe("n0:1", RANGE)
    network.run(4)
    told = [(name, install.groups) for name, _, install, _ in opened(network) if name != "n0:1"]
    assert len(told) == len(set(told)) == 7 + 3
    assert len({groups for _, groups in told}) == 1 + 3
    assert len({tuple(map(len, groups)) for _, groups in told}) == 1


def test_subscribers_with_one_interest_have_the_same_tags_and_end_times() -> None:
    """Individual fillers or end times would be a name that all nodes of a tree share."""
    network = TreeNetwork(6)
    network.run(6)
    for name in ("n0:1", "n1:1"):
        network.subscribe(name, RANGE)
    network.run(4)
    ordinary = {(install.groups, install.until_us) for _, _, install, layer in opened(network) if layer.children}
    assert len(ordinary) == 1


@pytest.mark.parametrize("anew", ["starts anew", "subscribes again"])
def test_all_guards_of_a_chain_get_the_same_instructions_after_a_restart(anew: str) -> None:
    """A guard with a new name of its own, and the old one for its parent, would recognise its parent as the
    subscriber."""
    network = TreeNetwork(8)
    network.run(6)
    number = network.subscribe("n0:1", RANGE)
    network.run(4)
    before, since = chain_of(network, "n0:1"), len(network.seen)
    if anew == "starts anew":
        network.kill("n0:1")
        network.start("n0:1")
    else:
        network.do("n0:1", lambda node, now: node.unsubscribe(number, now))
        network.subscribe("n0:1", RANGE)
    network.run(8)
    after = chain_of(network, "n0:1", since)
    assert len(before) == 3
    assert after.keys() <= before.keys()
    assert all(before[told].groups == after[told].groups for told in after)


def test_a_delivery_tag_expires_with_its_tree() -> None:
    """A node that still sends to its parent is refused by every parent alike."""
    ends = DeliveryTags(Secret(bytes(32)), EPOCH_US, 8)
    shared = SharedInterest(b"spelled", TOPIC, Label(TOPIC))
    name, over_us = ends.open(shared, 10), 12 * EPOCH_US
    assert ends.get(name, over_us - 1) is not None
    assert ends.get(name, over_us) is None


def test_a_change_affects_only_the_stops_it_concerns() -> None:
    nodes = [Recipient(bytes([number]) * 16, bytes(32)) for number in range(30)]
    tree = LiveTree(Secret(bytes(32)), nodes, nodes[0].node, bytes(16), nodes[1:4], 3, Secret(bytes(32)))
    gone = next(stop for stop in tree.stops if any(tree.next_stop(each) == stop for each in tree.stops))
    moved = tree.bypass(tree.node(gone))
    assert moved
    assert {stop: tree.version_of([stop]) for stop in tree.stops} == {stop: int(stop in moved) for stop in tree.stops}
    assert tree.version_of([moved[0], gone]) == 1 == tree.version_of([gone])


def test_a_newcomer_does_not_get_the_trees_of_one_subscriber_at_one_moment() -> None:
    """Otherwise the newcomer would see which trees belong together, and could join as often as it likes."""
    network = TreeNetwork(8, config=msgspec.structs.replace(QUICK_CONFIG, fetch_us=8 * SECOND, spread_us=3 * SECOND))
    network.kill("n7:1")
    network.run(70)  # The lease of who is away is over.
    for level in range(4):
        network.subscribe("n0:1", All(Label(TOPIC), Range("level", level, level)))
    network.run(10)
    came: list[int] = []

    def watch(source: str, message: Message) -> Message:
        if isinstance(message, Install):
            came.append(network.now)
        return message

    network.start("n7:1")
    network.rewrite = watch
    network.run(20)
    assert len(came) >= 4
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(sorted(came)[:4]))
    assert gaps[-1] > SECOND // 4


def test_no_node_is_attached_below_an_unfit_one() -> None:
    nodes = [Recipient(bytes([number]) * 16, bytes(32)) for number in range(40)]
    tree = LiveTree(Secret(bytes(32)), nodes, nodes[0].node, bytes(16), nodes[1:4], 3, Secret(bytes(32)))
    gone = {nodes[number].node for number in range(4, 39)}
    for number in range(40, 90):
        stop = tree.add(Recipient(bytes([number]) * 16, bytes(32)), Random(number), lambda node: node in gone)
        above = tree.next_stop(stop)
        assert above is not None
        assert tree.node(above) not in gone

"""What the instructions of a tree tell those who hand them on, open them, or keep them for another time."""

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
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.mesh import Message
from veilcast.wire.padding import pad, unpad
from veilcast.wire.tree import Install


def opened(grove: TreeNetwork, since: int = 0) -> list[tuple[str, str, Install, BundleLayer]]:
    """Every instruction that arrived: at whom, by which stream, as it came, and what was in it."""
    boxes = {
        str(name): Keypair(keyring_of(number, "hardened").membership.link) for number, name in enumerate(grove.names)
    }
    return [
        (name, source, install, open_layer(boxes[name], unpad(install.sealed), context=_context(install)))
        for name, source, install in grove.seen[since:]
        if isinstance(install, Install)
    ]


def inject(grove: TreeNetwork, name: str, message: Install) -> None:
    """On the stream of somebody who is none of the nodes."""
    grove.do(name, lambda node, now: node.receive(encode(message), Address("in:stranger"), now))


def _context(install: Install) -> bytes:
    return bundle_context(install.until_us, install.groups)


def test_where_a_subscriber_stands_among_those_who_are_told_is_chance() -> None:
    """A subscriber that always came last, or never first, would be counted out by those who hand on."""
    last, first = 0, 0
    for seed in range(12):
        grove = TreeNetwork(5, seed=seed)
        grove.run(4)
        grove.subscribe("n0:1")
        grove.run(3)
        home = grove.machine("n0:1").name
        handed = [layer.children for _, _, _, layer in opened(grove) if layer.children]
        last += sum(children[-1][0] == home for children in handed)
        first += not handed
    assert 0 < last < 8
    assert 0 < first < 8


def test_a_node_whose_table_others_have_filled_still_subscribes() -> None:
    grove = TreeNetwork(4, config=msgspec.structs.replace(QUICK_CONFIG, entries_max=1, chain=1))
    grove.run(4)
    grove.subscribe("n0:1")
    grove.run(4)
    assert grove.machine("n1:1").sizes()["entries"] == 1
    grove.subscribe("n1:1", All(Label(TOPIC), Range("level", 1, 3)))
    grove.run(4)
    assert grove.machine("n1:1").sizes()["entries"] == 1


def test_instructions_that_come_again_are_not_handed_on_again() -> None:
    """Or whoever repeats one message would have a whole group repeat it."""
    grove = TreeNetwork(6)
    grove.run(6)
    grove.subscribe("n0:1")
    grove.run(3)
    name, _, install, _ = next(each for each in opened(grove) if each[3].children and each[0] != "n0:1")
    before = len(opened(grove))
    for _ in range(10):
        inject(grove, name, install)
    grove.run(3)
    assert len(opened(grove)) == before


def test_who_knows_better_hands_on_to_those_who_do_not() -> None:
    grove = TreeNetwork(4)
    grove.run(6)
    rings = [keyring_of(number, "hardened") for number in (1, 2)]
    told = [Recipient(fingerprint(public_of(ring.membership.link)), public_of(ring.membership.link)) for ring in rings]
    says = [Instruction(bytes([number]) * 16, told[0].node, bytes(16)) for number in (1, 2)]
    later, groups = (grove.now // EPOCH_US + 2) * EPOCH_US, ((bytes(16),),)

    def install(count: int, until_us: int) -> Install:
        bundle = wrap_group(
            told[:count], says[:count], 2, SeededEntropy(b"told"), context=bundle_context(until_us, groups)
        )
        return MembershipProver(rings[0]).prove(Install(7, until_us, groups, pad(bundle, INSTALL_BLOCK)))

    inject(grove, "n1:1", install(1, later))
    inject(grove, "n1:1", install(2, later - 1))
    grove.run(2)
    assert [grove.machine(name).sizes()["entries"] for name in ("n1:1", "n2:1")] == [1, 1]


RANGE = All(Label(TOPIC), Range("level", 1, 4))
"""Whose cover is not of a power of two, so that it is filled up."""


def chain_of(grove: TreeNetwork, name: str, since: int = 0) -> dict[tuple[str, bytes], Install]:
    """What guards were told of the chains to this node: to whom, as it was in the layer."""
    ordinary = {each[2].groups for each in opened(grove) if each[3].children}
    return {
        (at, b"".join(msgspec.structs.astuple(layer.instruction))): install
        for at, _, install, layer in opened(grove, since)
        if install.groups not in ordinary and at != name
    }


def test_a_guard_is_not_told_the_tags_of_the_tree_a_second_time() -> None:
    """It matches nothing for the tree that hangs by it, and has nothing by which it knows what it is for."""
    grove = TreeNetwork(8)
    grove.run(6)
    grove.subscribe("n0:1", RANGE)
    grove.run(4)
    told = [(name, install.groups) for name, _, install, _ in opened(grove) if name != "n0:1"]
    assert len(told) == len(set(told)) == 7 + 3
    assert len({groups for _, groups in told}) == 1 + 3
    assert len({tuple(map(len, groups)) for _, groups in told}) == 1


def test_subscribers_with_one_interest_have_the_same_tags_and_ends() -> None:
    """Fillers or ends of one's own would be a name that all nodes of a tree have in common."""
    grove = TreeNetwork(6)
    grove.run(6)
    for name in ("n0:1", "n1:1"):
        grove.subscribe(name, RANGE)
    grove.run(4)
    ordinary = {(install.groups, install.until_us) for _, _, install, layer in opened(grove) if layer.children}
    assert len(ordinary) == 1


@pytest.mark.parametrize("anew", ["starts anew", "subscribes again"])
def test_all_guards_of_a_chain_are_told_the_same_again(anew: str) -> None:
    """One with another name of its own, and the same one for its parent, would know its parent for the subscriber."""
    grove = TreeNetwork(8)
    grove.run(6)
    number = grove.subscribe("n0:1", RANGE)
    grove.run(4)
    before, since = chain_of(grove, "n0:1"), len(grove.seen)
    if anew == "starts anew":
        grove.kill("n0:1")
        grove.start("n0:1")
    else:
        grove.do("n0:1", lambda node, now: node.unsubscribe(number, now))
        grove.subscribe("n0:1", RANGE)
    grove.run(8)
    after = chain_of(grove, "n0:1", since)
    assert len(before) == 3
    assert after.keys() <= before.keys()
    assert all(before[told].groups == after[told].groups for told in after)


def test_a_tree_that_is_over_has_no_end_that_outlasts_it() -> None:
    """Whoever still sends to its parent is refused by all alike."""
    ends = DeliveryTags(Secret(bytes(32)), EPOCH_US, 8)
    wish = SharedInterest(b"spelled", TOPIC, Label(TOPIC))
    name, over_us = ends.open(wish, 10), 12 * EPOCH_US
    assert ends.get(name, over_us - 1) is not None
    assert ends.get(name, over_us) is None


def test_a_change_counts_for_those_whom_it_concerns_only() -> None:
    nodes = [Recipient(bytes([number]) * 16, bytes(32)) for number in range(30)]
    tree = LiveTree(Secret(bytes(32)), nodes, nodes[0].node, bytes(16), nodes[1:4], 3, Secret(bytes(32)))
    gone = next(stop for stop in tree.stops if any(tree.next_stop(each) == stop for each in tree.stops))
    moved = tree.bypass(tree.node(gone))
    assert moved
    assert {stop: tree.version_of([stop]) for stop in tree.stops} == {stop: int(stop in moved) for stop in tree.stops}
    assert tree.version_of([moved[0], gone]) == 1 == tree.version_of([gone])


def test_the_trees_of_one_subscriber_do_not_come_to_a_newcomer_at_one_moment() -> None:
    """It would see which trees are told together, and could come as often as it likes."""
    grove = TreeNetwork(8, config=msgspec.structs.replace(QUICK_CONFIG, fetch_us=8 * SECOND, spread_us=3 * SECOND))
    grove.kill("n7:1")
    grove.run(70)  # The lease of who is away is over.
    for level in range(4):
        grove.subscribe("n0:1", All(Label(TOPIC), Range("level", level, level)))
    grove.run(10)
    came: list[int] = []

    def watch(source: str, message: Message) -> Message:
        if isinstance(message, Install):
            came.append(grove.now)
        return message

    grove.start("n7:1")
    grove.rewrite = watch
    grove.run(20)
    assert len(came) >= 4
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(sorted(came)[:4]))
    assert gaps[-1] > SECOND // 4


def test_nobody_is_hung_below_one_of_whom_nothing_can_be_asked() -> None:
    nodes = [Recipient(bytes([number]) * 16, bytes(32)) for number in range(40)]
    tree = LiveTree(Secret(bytes(32)), nodes, nodes[0].node, bytes(16), nodes[1:4], 3, Secret(bytes(32)))
    gone = {nodes[number].node for number in range(4, 39)}
    for number in range(40, 90):
        stop = tree.add(Recipient(bytes([number]) * 16, bytes(32)), Random(number), lambda node: node in gone)
        above = tree.next_stop(stop)
        assert above is not None
        assert tree.node(above) not in gone

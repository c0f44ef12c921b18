"""Who is left out after probes were lost, and who is not: a parent that frames its child does not get rid of it."""

from __future__ import annotations

from typing import Any

import pytest

from veilcast.crypto.secret import Secret
from veilcast.tree.config import TreeConfig
from veilcast.tree.instruction_bundles import Recipient
from veilcast.tree.live_tree import LiveTree
from veilcast.tree.prober import ProbeOutcome
from veilcast.tree.repair import TreeRepair

NODES = [Recipient(bytes([number]) * 16, bytes(32)) for number in range(60)]
CONFIG = TreeConfig()


class Wood:
    """One tree, in the place of all that is subscribed to; it does what tending asks for."""

    round_us = 1_000_000

    def __init__(self) -> None:
        self.tree = LiveTree(Secret(bytes(32)), NODES, b"h" * 16, bytes(16), NODES[57:], 3, Secret(bytes(32)))
        self.left: list[bytes] = []
        self.told: list[int] = []
        self.now = 0
        guards: Any = [node.node for node in NODES[57:]]
        self.tending = TreeRepair(CONFIG, self, guards)  # type: ignore[arg-type]
        self.wish = self
        self.readers = {1: None}
        self.round_us = 30_000_000

    def avoids(self, node: bytes) -> bool:
        return node in self.left

    def avoid(self, node: bytes, until_us: int, now: int) -> None:
        self.left.append(node)
        self.tree.bypass(node)

    def put_on_trial(self, node: bytes, now: int) -> bool:
        return any(self.tree.move_up(stop) for stop in self.tree.stops_of(node))

    def reach(self, term: Any, stop: int, now: int) -> None: ...

    def doubt(self, node: bytes) -> None: ...

    def trust(self, node: bytes) -> None: ...

    def tell_again(self, term: Any, stop: int, now: int) -> None:
        self.told.append(stop)

    def urge(self, term: Any, stop: int, when: int) -> None: ...

    def probe(self, lost: Any) -> None:
        """From everywhere, and judge what came of it."""
        me: Any = self
        for stop in self.tree.stops:
            way = [self.tree.node(each) for each in self.tree.path(stop)]
            self.tending.handle_outcome(
                me, me, stop, way, ProbeOutcome.LOST if lost(way) else ProbeOutcome.RETURNED, self.now
            )
        self.now += 60_000_000
        self.tending.handle(self.now)


def edge(wood: Wood) -> tuple[bytes, bytes]:
    """A node that nobody hangs by, and its parent, who has others and hangs by a node itself."""
    tree = wood.tree
    above = {tree.next_stop(stop) for stop in tree.stops}
    leaf = next(stop for stop in tree.stops if stop not in above and len(tree.path(stop)) == 3 + 4)
    parent = tree.next_stop(leaf)
    assert parent is not None
    return tree.node(leaf), tree.node(parent)


def test_who_drops_what_one_child_hands_on_does_not_have_the_child_left_out() -> None:
    wood = Wood()
    child, parent = edge(wood)
    for _ in range(12):
        wood.probe(lambda way: child in way and way[way.index(child) + 1] == parent)
    assert child not in wood.left
    assert parent not in [wood.tree.node(stop) for each in wood.tree.stops_of(child) for stop in wood.tree.path(each)]


@pytest.mark.parametrize("who", [0, 1], ids=["child", "parent"])
def test_who_drops_everything_is_left_out_wherever_it_is_hung(who: int) -> None:
    wood = Wood()
    dropper = edge(wood)[who]
    for _ in range(12):
        wood.probe(lambda way: dropper in way)
    assert wood.left == [dropper]


def test_who_is_avoided_is_told_again_what_it_lacks() -> None:
    """Publishers do not know that it is avoided, and it may be the origin that they choose."""
    wood: Any = Wood()
    wood.avoid(NODES[5].node, 0, 0)
    for _ in range(2):
        way = [wood.tree.node(each) for each in wood.tree.way(5)]
        wood.tending.judge(wood, wood, 5, way, ProbeOutcome.MISSING, 0)
    assert wood.told == [5]


def test_who_loses_things_below_a_second_parent_is_left_out_whatever_was_forgotten_of_the_first() -> None:
    """Here the first parent is left out, too, and with it what was seen of both."""
    wood = Wood()
    dropper, parent = edge(wood)
    for _ in range(3):
        wood.probe(lambda way: dropper in way)
        if parent not in [
            wood.tree.node(stop) for each in wood.tree.stops_of(dropper) for stop in wood.tree.path(each)
        ]:
            break
    assert wood.left == []
    wood.tending._leave(parent, wood.now)
    for _ in range(6):
        wood.probe(lambda way: dropper in way)
    assert wood.left == [parent, dropper]


@pytest.mark.parametrize("proven", [True, False])
def test_a_guard_by_which_things_have_come_has_a_second_chance_and_no_other(proven: bool) -> None:
    wood = Wood()
    guard = NODES[57].node
    if proven:
        wood.probe(lambda way: False)
    while not wood.left:
        wood.probe(lambda way: guard in way)
        assert wood.now < 30 * 60_000_000
    assert wood.left == [guard]
    assert (wood.now > 2 * 60_000_000) is proven

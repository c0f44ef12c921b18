"""Which nodes are excluded after lost probes: a parent that frames its child does not get the child excluded."""

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


class RepairedTree:
    """One tree in place of a subscriber and its prober; it carries out the changes that the repair asks for."""

    round_us = 1_000_000

    def __init__(self) -> None:
        self.tree = LiveTree(Secret(bytes(32)), NODES, b"h" * 16, bytes(16), NODES[57:], 3, Secret(bytes(32)))
        self.excluded: list[bytes] = []
        self.reinstalled: list[int] = []
        self.now = 0
        guards: Any = [node.node for node in NODES[57:]]
        self.repair = TreeRepair(CONFIG, self, guards)  # type: ignore[arg-type]
        self.interest = self
        self.numbers = {1: None}
        self.round_us = 30_000_000

    def avoids(self, node: bytes) -> bool:
        return node in self.excluded

    def avoid(self, node: bytes, until_us: int, now: int, weight: float = 0.0) -> None:
        self.excluded.append(node)
        self.tree.bypass(node)

    def move_to_other_parent(self, node: bytes, now: int) -> bool:
        return any(self.tree.move_up(stop) for stop in self.tree.stops_of(node))

    def mark_reached(self, epoch_tree: Any, stop: int, now: int) -> None: ...

    def doubt(self, node: bytes) -> None: ...

    def trust(self, node: bytes) -> None: ...

    def reinstall(self, epoch_tree: Any, stop: int, now: int) -> None:
        self.reinstalled.append(stop)

    def probe_soon(self, epoch_tree: Any, stop: int, when: int) -> None: ...

    def probe(self, lost: Any) -> None:
        """Probe every stop, and report the outcomes to the repair."""
        me: Any = self
        for stop in self.tree.stops:
            path = [self.tree.node(each) for each in self.tree.path(stop)]
            self.repair.handle_outcome(
                me, me, stop, path, ProbeOutcome.LOST if lost(path) else ProbeOutcome.RETURNED, self.now
            )
        self.now += 60_000_000
        self.repair.handle(self.now)


def pick_leaf(repaired: RepairedTree) -> tuple[bytes, bytes]:
    """A leaf and its parent, which has other children and is not the root."""
    tree = repaired.tree
    above = {tree.next_stop(stop) for stop in tree.stops}
    leaf = next(stop for stop in tree.stops if stop not in above and len(tree.path(stop)) == 3 + 4)
    parent = tree.next_stop(leaf)
    assert parent is not None
    return tree.node(leaf), tree.node(parent)


def test_a_parent_that_drops_one_childs_messages_does_not_get_the_child_excluded() -> None:
    repaired = RepairedTree()
    child, parent = pick_leaf(repaired)
    for _ in range(12):
        repaired.probe(lambda path: child in path and path[path.index(child) + 1] == parent)
    assert child not in repaired.excluded
    assert parent not in [
        repaired.tree.node(stop) for each in repaired.tree.stops_of(child) for stop in repaired.tree.path(each)
    ]


@pytest.mark.parametrize("who", [0, 1], ids=["child", "parent"])
def test_a_node_that_drops_everything_is_excluded_below_any_parent(who: int) -> None:
    repaired = RepairedTree()
    dropper = pick_leaf(repaired)[who]
    for _ in range(12):
        repaired.probe(lambda path: dropper in path)
    assert repaired.excluded == [dropper]


def test_an_avoided_node_receives_its_missing_instruction_again() -> None:
    """Publishers do not know that the node is avoided, and may choose it as an origin."""
    repaired: Any = RepairedTree()
    repaired.avoid(NODES[5].node, 0, 0)
    for _ in range(2):
        path = [repaired.tree.node(each) for each in repaired.tree.path(5)]
        repaired.repair.handle_outcome(repaired, repaired, 5, path, ProbeOutcome.MISSING, 0)
    assert repaired.reinstalled == [5]


def test_a_node_that_drops_below_a_second_parent_is_excluded() -> None:
    """The first parent is excluded, too, and with it the probes that passed both."""
    repaired = RepairedTree()
    dropper, parent = pick_leaf(repaired)
    for _ in range(3):
        repaired.probe(lambda path: dropper in path)
        if parent not in [
            repaired.tree.node(stop) for each in repaired.tree.stops_of(dropper) for stop in repaired.tree.path(each)
        ]:
            break
    assert repaired.excluded == []
    repaired.repair._avoid(parent, repaired.now)
    for _ in range(6):
        repaired.probe(lambda path: dropper in path)
    assert repaired.excluded == [parent, dropper]


@pytest.mark.parametrize("proven", [True, False])
def test_a_proven_guard_gets_exactly_one_second_chance(proven: bool) -> None:
    repaired = RepairedTree()
    guard = NODES[57].node
    if proven:
        repaired.probe(lambda path: False)
    while not repaired.excluded:
        repaired.probe(lambda path: guard in path)
        assert repaired.now < 30 * 60_000_000
    assert repaired.excluded == [guard]
    assert (repaired.now > 2 * 60_000_000) is proven

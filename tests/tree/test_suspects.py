"""Suspects: droppers are named, one or many, permanent or occasional; honest nodes are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.tree import suspects
from veilcast.tree.instruction_bundles import NodeId
from veilcast.tree.layout import HardenedLayout
from veilcast.tree.suspects import PATH_MAX, DropSuspects

N = 200
NODES = [number.to_bytes(16, "big") for number in range(N)]
GUARDS = NODES[1:4]

Drops = Callable[[NodeId, int, Random], bool]
"""True if this node drops the probe, at this place of its path."""


def always(bad: Collection[NodeId]) -> Drops:
    return lambda node, at, rng: node in bad


def sometimes(bad: Collection[NodeId], chance: float) -> Drops:
    return lambda node, at, rng: node in bad and rng.random() < chance


def planned(trees: int, rng: Random) -> Iterator[HardenedLayout]:
    for _ in range(trees):
        yield HardenedLayout(Secret(rng.randbytes(16)), NODES, home=NODES[0], guards=GUARDS, r=3)


def observed(drops: Drops, *, trees: int, each: int = 1, loss: float = 0.0, seed: int = 1) -> DropSuspects:
    """Probes that enter at every node `each` times in every tree."""
    rng, found = Random(seed), DropSuspects(remembered=100_000)
    for plan in planned(trees, rng):
        for number in range(N):
            way = plan.path(number)
            for _ in range(each):
                lost = rng.random() < loss or any(drops(node, at, rng) for at, node in enumerate(way))
                found.record(way, returned=not lost)
    return found


def named(found: DropSuspects) -> set[NodeId]:
    return {suspect.node for suspect in found.find_suspects()}


@given(st.sets(st.sampled_from(NODES[4:]), min_size=1, max_size=12), st.integers(0, 99))
@settings(max_examples=15)
def test_a_node_that_drops_everything_is_named_after_a_few_trees_and_no_other(bad: set[NodeId], seed: int) -> None:
    """This holds for every dropper that had no other dropper above it in enough trees."""
    rng, found, shown = Random(seed), DropSuspects(remembered=10_000), Counter[NodeId]()
    for plan in planned(8, rng):
        for number in range(N):
            way = plan.path(number)
            found.record(way, returned=not bad & set(way))
            shown[way[0]] += way[0] in bad and not bad & set(way[1:])
    verdict = named(found)
    assert verdict <= bad
    assert verdict >= {node for node, times in shown.items() if times >= 4}


def test_a_parent_of_many_is_named_at_once_and_its_children_are_not_blamed() -> None:
    plan = HardenedLayout(Secret(b"a tree"), NODES, home=NODES[0], guards=GUARDS, r=3)
    top = next(number for number in range(4, N) if plan.place(number) == 2)
    found = DropSuspects(remembered=1000)
    for number in range(N):
        way = plan.path(number)
        found.record(way, returned=NODES[top] not in way)
    (suspect,) = found.find_suspects()
    assert suspect.node == NODES[top]
    assert suspect.rate > 0.9


def test_a_faulty_guard_is_identified_by_probes_on_the_chain() -> None:
    """All paths pass all guards; only probes that enter at one of them identify it."""
    bad = GUARDS[1]
    found = observed(always([bad]), trees=1)
    for link in range(3):
        way = tuple(reversed(GUARDS[: link + 1]))
        for _ in range(4):
            found.record(way, returned=bad not in way)
    assert named(found) == {bad}


@pytest.mark.parametrize(("chance", "each", "trees"), [(0.5, 4, 6), (0.25, 10, 6)])
def test_an_occasional_dropper_is_named_after_many_probes(chance: float, each: int, trees: int) -> None:
    bad = set(NODES[10:20])
    found = observed(sometimes(bad, chance), trees=trees, each=each, loss=0.01)
    verdict = found.find_suspects()
    assert {suspect.node for suspect in verdict} == bad
    rates = [suspect.rate for suspect in verdict]
    assert abs(sum(rates) / len(rates) - chance) < 0.15


def test_a_node_that_drops_only_forwarded_probes_is_not_cleared_by_its_own() -> None:
    bad = set(NODES[10:14])
    found = observed(lambda node, at, rng: at > 0 and node in bad, trees=12)
    verdict = named(found)
    assert verdict
    assert verdict <= bad


def test_droppers_are_found_among_a_tenth_of_all_nodes() -> None:
    bad = set(NODES[20:40])
    verdict = named(observed(always(bad), trees=8, loss=0.01))
    assert len(verdict & bad) >= 18
    assert len(verdict - bad) <= 1


def test_random_losses_name_no_node() -> None:
    for seed in range(10):
        assert named(observed(always([]), trees=3, loss=0.02, seed=seed)) == set()


def test_a_node_that_drops_one_childs_probes_is_not_found_and_few_others_are_named() -> None:
    """A limit of the method: either end of a link may have dropped the probe."""
    bad, found, rng = set(NODES[10:13]), DropSuspects(remembered=10_000), Random(1)
    for plan in planned(12, rng):
        victim: dict[NodeId, NodeId] = {}
        for number in range(N):
            way = plan.path(number)
            links = [(child, parent) for child, parent in pairwise(way) if parent in bad]
            lost = any(victim.setdefault(parent, child) == child for child, parent in links)
            found.record(way, returned=not lost)
        assert len(named(found) - bad) <= 3


def test_a_forgotten_node_gets_another_chance() -> None:
    bad = NODES[30]
    found = observed(always([bad]), trees=6)
    assert named(found) == {bad}
    found.forget(bad)
    assert named(found) == set()
    assert 0 < len(found) < 6 * N


def test_old_probes_are_forgotten() -> None:
    found = DropSuspects(remembered=50)
    for _ in range(50):
        found.record((NODES[5], *GUARDS), returned=False)
    assert NODES[5] in named(found) or named(found) & set(GUARDS)
    for _ in range(50):
        found.record((NODES[5], *GUARDS), returned=True)
    assert len(found) == 50
    assert found.find_suspects() == []


def test_blaming_only_the_entry_node_would_name_honest_nodes() -> None:
    """The planted bug: the tests above would notice a verdict that ignores the path."""
    bad = set(NODES[30:42])
    real = DropSuspects.record

    def short(found: DropSuspects, way: Sequence[NodeId], *, returned: bool) -> None:
        real(found, way[:1], returned=returned)

    assert not named(observed(always(bad), trees=1, each=6)) - bad
    with patch.object(DropSuspects, "record", short):
        assert named(observed(always(bad), trees=1, each=6)) - bad


def test_blaming_a_node_for_every_loss_would_name_honest_nodes() -> None:
    """The planted bug: a verdict that ignores random loss."""
    with patch.object(suspects._Table, "weights", lambda table, rates: rates[0] * 1e3):
        assert named(observed(always([]), trees=3, loss=0.02))


def test_invalid_parameters_and_paths_are_refused() -> None:
    for remembered, loss, error in ((0, 0.1, 0.1), (1, 0.0, 0.1), (1, 0.1, 1.0)):
        with pytest.raises(LocalError):
            DropSuspects(remembered=remembered, loss=loss, error=error)
    found = DropSuspects(remembered=4)
    for way in ((), NODES[: PATH_MAX + 1]):
        with pytest.raises(LocalError):
            found.record(way, returned=True)
    assert found.find_suspects() == []

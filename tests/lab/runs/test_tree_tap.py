"""What real nodes of a tree see: in the paper's, how near to the subscriber they are; hardened, whom to hand to."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Literal

import msgspec

from veilcast.lab.models.tree_refreshes import LAYER
from veilcast.lab.runs.tree.tree_tap import TreeTap
from veilcast.machine import Address
from veilcast.observe import ServerRow
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import World

EPOCH_US = 30_000_000
EPOCHS = 3
PLAIN = TreePopulation(nodes=12, publishers=1, subscribers=1, topics=1, notes=0, checks=())
SUBSCRIBER = PLAIN.subscriber_names()[0]
COALITION = PLAIN.node_names()[:-1]


@cache
def seen(profile: Literal["paper", "hardened"], coalition: tuple[Address, ...] = COALITION) -> list[ServerRow]:
    population = msgspec.structs.replace(PLAIN, tree=msgspec.structs.replace(PLAIN.tree, profile=profile))
    world = World(seed=3, epoch_us=EPOCH_US)
    taps = TreeTap("r", population, coalition, EPOCH_US)
    world.watch(taps)
    population.populate(world, EPOCHS * EPOCH_US)
    world.run(EPOCHS * EPOCH_US)
    return taps.rows


def test_the_papers_longest_bundle_names_the_subscriber() -> None:
    rows = seen("paper")
    longest, shortest = max(row.size for row in rows), min(row.size for row in rows)
    assert len({row.size for row in rows}) > 2
    assert all((row.size - shortest) % LAYER < 2 for row in rows)  # Longer lengths take a byte more.
    assert {row.pseudonym for row in rows if row.size == longest} == {SUBSCRIBER}


def test_hardened_bundles_have_one_size_and_no_tag_is_seen_in_two_epochs() -> None:
    rows = seen("hardened")
    assert len({row.size for row in rows}) == 1
    assert len({row.epoch for row in rows}) > 1
    assert len({row.tag for row in rows}) == len({(row.tag, row.epoch) for row in rows})


def test_hardened_guards_are_told_no_tag_that_others_are() -> None:
    """So they must find out by other means for what topic they stand guard."""
    rows = seen("hardened")
    readers = Counter(tag for tag, _ in {(row.tag, row.role) for row in rows})
    told = {row.tag for row in rows if row.role in guards(rows) and row.pseudonym == SUBSCRIBER}
    assert any(readers[tag] == 1 for tag in told)


def guards(rows: list[ServerRow]) -> list[str]:
    """Who has the subscriber for a parent in every epoch."""
    told = {(row.role, row.epoch) for row in rows if row.pseudonym == SUBSCRIBER}
    epochs = {row.epoch for row in rows}
    return [role for role in dict.fromkeys(row.role for row in rows) if all((role, epoch) in told for epoch in epochs)]


def test_hardened_one_node_has_the_subscriber_for_a_parent_in_every_epoch() -> None:
    assert len(guards(seen("hardened"))) == 1


def test_nobody_outside_the_coalition_is_tapped() -> None:
    assert {row.role for row in seen("hardened", COALITION[:3])} == {f"tree:{name}" for name in COALITION[:3]}

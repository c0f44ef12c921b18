"""What real nodes of a tree see: in the paper's, how near to the subscriber they are; hardened, whom to hand to."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Literal

import msgspec

from veilcast.lab.kernels.refreshes import LAYER
from veilcast.lab.sweep.tree_taps import Taps
from veilcast.machine import Address
from veilcast.observe import Server
from veilcast.sim.tree import TreePopulation
from veilcast.sim.world import World

EPOCH_US = 30_000_000
EPOCHS = 3
PLAIN = TreePopulation(nodes=12, publishers=1, subscribers=1, topics=1, notes=0, checks=())
SUBSCRIBER = PLAIN.subscriber_names()[0]
COALITION = PLAIN.node_names()[:-1]


@cache
def seen(profile: Literal["paper", "hardened"], coalition: tuple[Address, ...] = COALITION) -> list[Server]:
    population = msgspec.structs.replace(PLAIN, tree=msgspec.structs.replace(PLAIN.tree, profile=profile))
    world = World(seed=3, epoch_us=EPOCH_US)
    taps = Taps("r", population, coalition, EPOCH_US)
    world.watch(taps)
    population.settle(world, EPOCHS * EPOCH_US)
    world.run(EPOCHS * EPOCH_US)
    return taps.rows


def test_the_papers_longest_bundle_names_the_subscriber() -> None:
    rows = seen("paper")
    longest, shortest = max(row.size for row in rows), min(row.size for row in rows)
    assert len({row.size for row in rows}) > 2
    assert all((row.size - shortest) % LAYER < 2 for row in rows)  # Longer lengths take a byte more.
    assert {row.pseudonym for row in rows if row.size == longest} == {SUBSCRIBER}


def test_hardened_bundles_have_one_size_and_tags_change() -> None:
    rows = seen("hardened")
    assert len({row.size for row in rows}) == 1
    tags = {row.epoch: row.tag for row in rows}
    assert len(set(tags.values())) == len(tags) > 1
    assert all(row.tag == tags[row.epoch] for row in rows)


def test_hardened_whoever_has_the_subscriber_for_a_parent_in_every_epoch_is_its_guard() -> None:
    rows = seen("hardened")
    epochs = {row.epoch for row in rows}
    told = Counter((row.role, row.pseudonym, row.epoch) for row in rows)
    lasting = [
        role
        for role in dict.fromkeys(row.role for row in rows)
        if all((role, SUBSCRIBER, epoch) in told for epoch in epochs)
    ]
    assert len(lasting) == 1


def test_nobody_outside_the_coalition_is_tapped() -> None:
    assert {row.role for row in seen("hardened", COALITION[:3])} == {f"tree:{name}" for name in COALITION[:3]}

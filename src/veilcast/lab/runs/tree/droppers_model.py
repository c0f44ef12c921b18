"""How subscribers find droppers: the method of real nodes (`tree.suspects`), on test publications over drawn trees.

In every epoch a test publication enters the subscriber's tree at each node, and climbs the tree and the chain of
guards. Droppers drop publications that they should forward, always or at random. Then the subscriber names suspects.
Measures: the share of suspects that do drop ("precision"; 1 without suspects), the share of droppers that are named
("recall"), and the share of test publications that returned. Two controls: "honest" is the number of suspects without
droppers, where publications are still lost at random; "shuffled" is the precision if results are assigned to other
paths.

If a chain lets nothing through, it is replaced, as a subscriber does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.tree_params import TreeDroppers
from veilcast.lab.models import tree
from veilcast.lab.models.rng import stream
from veilcast.tree.suspects import DropSuspects

Mask = NDArray[np.bool_]
NodePath = tuple[int, ...]


class TestRound(NamedTuple):
    """The result of one test publication for each node."""

    ways: list[NodePath]
    returned: Mask


def run(params: TreeDroppers, seed: int, data: Path | None = None) -> list[Measure]:
    rng = np.random.default_rng(stream(seed, "drops"))
    drops = np.zeros(params.nodes, np.bool_)
    subscriber, *hostile = tree.draw_nodes(
        params.nodes, 1 + round(params.droppers * params.nodes), seed, "droppers"
    ).tolist()
    drops[hostile] = True
    kinds = {
        "suspects": _rounds(params, subscriber, drops, seed, rng),
        "honest": _rounds(params, subscriber, np.zeros_like(drops), seed, rng),
        "shuffled": _dealt(_rounds(params, subscriber, drops, seed, rng), rng),
    }
    found = []
    for kind, rounds in kinds.items():
        for step, named, back in _name_suspects(rounds, params):
            right = int(np.count_nonzero(drops[named]))
            told = {
                "precision": right / len(named) if named else 1.0,
                "recall": right / len(hostile),
                "named": float(len(named)),
                "returned": back,
            }
            found += [Measure(kind, metric, step, value) for metric, value in told.items()]
    return found


def _name_suspects(rounds: Iterator[TestRound], params: TreeDroppers) -> Iterator[tuple[float, list[int], float]]:
    """At each step: the suspects, and the share of the last test publications that returned."""
    suspects = DropSuspects(remembered=int(params.steps[-1]) * params.nodes, loss=_LOSS)
    for number, (ways, returned) in enumerate(rounds, start=1):
        for way, came in zip(ways, returned.tolist(), strict=True):
            suspects.record([_name(node) for node in way], returned=came)
        if number in params.steps:
            yield (
                number,
                [int.from_bytes(each.node, "big") for each in suspects.find_suspects()],
                float(returned.mean()),
            )
        if number == params.steps[-1]:
            return


def _rounds(
    params: TreeDroppers, subscriber: int, drops: Mask, seed: int, rng: np.random.Generator
) -> Iterator[TestRound]:
    guards = _guards(params, subscriber, rng)
    number = 0
    while True:
        above = tree.all_parents(tree.randomly_rooted(params.nodes, params.depth, 1, seed, "round", number))[:, 0]
        ways = [_way(above, node, guards) for node in range(params.nodes) if node != subscriber]
        passed = [
            not any(drops[node] and rng.random() < params.drops for node in way if node != subscriber) for way in ways
        ]
        returned = np.array(passed) & (rng.random(len(ways)) >= _LOSS)
        yield TestRound(ways, returned)
        if not returned.any():
            guards = _guards(params, subscriber, rng)
        number += 1


def _dealt(rounds: Iterator[TestRound], rng: np.random.Generator) -> Iterator[TestRound]:
    for ways, returned in rounds:
        yield TestRound(ways, rng.permutation(returned))


def _way(above: tree.Nodes, node: int, guards: NodePath) -> NodePath:
    climbed = [node]
    while above[climbed[-1]] >= 0:
        climbed.append(int(above[climbed[-1]]))
    return (*climbed, *guards)


def _guards(params: TreeDroppers, subscriber: int, rng: np.random.Generator) -> NodePath:
    drawn = rng.permutation(params.nodes)[: params.chain + 1]
    return tuple(drawn[drawn != subscriber][: params.chain].tolist())


def _name(node: int) -> bytes:
    return node.to_bytes(16, "big")


_LOSS: Final = 0.02
"""Random loss without a dropper."""

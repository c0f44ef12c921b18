"""Attacks of a coalition on one subscriber whose trees are drawn again in every epoch.

The subscriber is the only reader of the topic, and the coalition knows the topic: the worst case. "count", "lasting",
"depth" and "volume" need no knowledge of how trees are made (`insider.tree_nodes`). "likelihood" knows the shape of the
paper's trees. "guards" knows how hardened chains are made, how far behind the root each guard of the coalition stands,
and how often guards are replaced. "path" is P2's own attack: whole paths.

Measures of each attack: whether the subscriber is the unique first ("first"); the probability that the named node is
the subscriber ("named", drawn among equal scores); how well it stands out ("auc"); the probability that the attack
assigns to it, if it gives probabilities ("belief"); and, for counting, whether the subscriber is found permanently
("disclosed").
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.registry import applies, attackers_on
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.tree_params import TreeAttacks, TreeCoalition
from veilcast.lab.measure import disclosure_time, ranking
from veilcast.lab.models import tree, tree_refreshes
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.models.tree_refreshes import TreePolicy, TreeReaders

Scores = NDArray[np.float64]


def run(params: TreeAttacks, seed: int, data: Path | None = None) -> list[Measure]:
    habit, village = make_tree_policy(params), draw_readers(params, seed)
    entries = tree_refreshes.watch_refreshes(village, habit, int(params.steps[-1]), params.publications)
    found = []
    for step in params.steps:
        for attack, scores in _attackers(entries.before(int(step)), village, habit):
            reached = _measure_scores(scores, village)
            if attack == "guards":
                reached["belief"] = float(scores[village.readers[0]])
            found += [Measure(attack, metric, step, value) for metric, value in reached.items()]
    found += _measure_disclosure(entries, village, params)
    return found + _paths(village, habit, params)


def make_tree_policy(params: TreeCoalition) -> TreePolicy:
    return TreePolicy(
        profile="paper" if params.tree == "paper" else "hardened",
        depth=params.depth,
        chain=params.chain,
        tail=params.tail,
        kept=params.guards == "kept",
        turnover=params.churn,
        padded=params.padded,
    )


def draw_readers(params: TreeAttacks, seed: int) -> TreeReaders:
    """One subscriber, and a coalition of other nodes."""
    size = max(1, round(params.insiders * params.nodes))
    drawn = tree.draw_nodes(params.nodes, min(size + 1, params.nodes), seed, "village")
    return TreeReaders(params.nodes, np.sort(drawn[1:]), drawn[:1], np.zeros(1, np.int64), seed)


def _attackers(entries: TreeEntries, village: TreeReaders, habit: TreePolicy) -> Iterator[tuple[str, Scores]]:
    if habit.profile == "paper":
        branching = tree.least_branching(village.nodes, habit.depth)
        seen = TreeObservations(entries, village.nodes, village.honest, branching=branching)
    else:
        length = habit.chain + habit.tail
        places = range(2, length + 2) if habit.tail else [length + 1]
        turnover = habit.turnover if habit.kept else 1.0
        seen = TreeObservations(entries, village.nodes, village.honest, places=places, turnover=turnover)
    for attacker in attackers_on(TreeObservations):
        if applies(attacker, seen):
            yield attacker.name, attacker.score(seen)


def _measure_scores(scores: Scores, village: TreeReaders) -> dict[str, float]:
    honest = village.honest
    truth = np.arange(village.nodes) == village.readers[0]
    target = int(np.flatnonzero(truth[honest])[0])
    return {
        "first": float(disclosure_time.is_first(scores[honest], target)),
        "named": ranking.precision_at(scores[honest], truth[honest], 1),
        "auc": ranking.auc(scores[honest], truth[honest]),
    }


def _measure_disclosure(entries: TreeEntries, village: TreeReaders, params: TreeAttacks) -> list[Measure]:
    """Whether counting alone has found the subscriber permanently, by each step."""
    honest = village.honest
    counts = np.zeros((int(params.steps[-1]), village.nodes))
    np.add.at(counts, (entries.refresh, entries.parent), 1.0)
    target = int(np.count_nonzero(honest[: village.readers[0]]))
    after = disclosure_time.rounds_to_disclosure(np.cumsum(counts, axis=0)[:, honest], target)
    return [Measure("count", "disclosed", step, float(after is not None and after <= step)) for step in params.steps]


def _paths(village: TreeReaders, habit: TreePolicy, params: TreeAttacks) -> list[Measure]:
    """Measures of one tree, the same for every step."""
    runs, last, owned = tree_refreshes.trace_paths(village, habit, _PATHS)
    share = village.insiders.size / (village.nodes - 1)
    branching = tree.least_branching(village.nodes, habit.depth)
    found = _measure_scores(tree_nodes.score_paths(runs, last, village.nodes), village)
    found["owned"] = owned
    found["claimed"] = share**habit.depth
    found["below_root"] = 1 - (1 - share) ** branching
    return [Measure("path", metric, params.steps[-1], value) for metric, value in found.items()]


_PATHS: Final = 2000
"""Publications whose holders from the origin on are examined."""

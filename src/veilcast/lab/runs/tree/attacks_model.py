"""Attacks of a coalition on one subscriber whose trees are drawn again in every epoch.

The subscriber is the only reader of the topic, and the coalition knows the topic: the worst case. "count", "lasting",
"depth" and "volume" need no knowledge of how trees are made (`insider.tree_nodes`). "likelihood" knows the shape of the
paper's trees. "guards" knows how hardened chains are made, how far behind the root each guard of the coalition stands,
and how often guards are replaced. "path" is P2's own attack: whole paths.

Measures of each attack: whether the subscriber is the unique first ("first"); the probability that the named node is
the subscriber ("named", drawn among equal scores); how well it stands out ("auc"); the probability that the attack
assigns to it, if it gives probabilities ("belief"); and, for counting, whether the subscriber is found permanently
("disclosed").

The model writes tables (`tree_tables`), and the attackers of the registry guess from them (`attack.insider.tree_job`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.insider.tree_job import guess_from_trees
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.tree_params import TreeAttacks, TreeCoalition
from veilcast.lab.measure import disclosure_time, ranking
from veilcast.lab.models import tree, tree_refreshes
from veilcast.lab.models.tree_refreshes import PublicationPaths, TreePolicy, TreeReaders
from veilcast.lab.runs.tree.tree_tables import observe_trees, tabulate_truth

Scores = NDArray[np.float64]


def run(
    params: TreeAttacks, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    habit, village, epochs = make_tree_policy(params), draw_readers(params, seed), int(params.steps[-1])
    entries = tree_refreshes.watch_refreshes(village, habit, epochs, params.publications)
    paths = tree_refreshes.trace_paths(village, habit, _PATHS)
    observed = observe_trees(_RUN, village, habit, entries, paths)
    guesses, truth = attack_tables(observed, params, (), data), tabulate_truth(_RUN, village, epochs)
    record_tables(recorder, observed | {"guesses": guesses, "truth": truth})
    return measure_guesses(guesses, truth, params, (), seed) + _measure_paths(village, habit, paths, params)


def attack_tables(
    observed: Mapping[str, AnyTable], params: TreeAttacks, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of all that know enough, and of those that the parameters name."""
    return guess_from_trees(observed, names or (*_ATTACKS, *params.attacks), [int(step) for step in params.steps])


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: TreeAttacks, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of all."""
    return [measure for measure in _measure_attacks(guesses, truth, params) if not names or measure.attack in names]


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


def _measure_attacks(guesses: pa.Table, truth: pa.Table, params: TreeAttacks) -> Iterator[Measure]:
    [subscriber] = truth.filter(pc.equal(truth["role"], "subscriber"))["node"].to_pylist()
    last = int(params.steps[-1])
    for attack in pc.unique(guesses["attack"]).to_pylist():
        of_attack = guesses.filter(pc.equal(guesses["attack"], attack))
        for step in params.steps:
            rows = of_attack.filter(pc.equal(of_attack["epochs"], int(step)))
            scores = rows["score"].to_numpy()
            target = rows["node"].to_pylist().index(subscriber)
            if attack == "disclosed":
                # The number of epochs since which the subscriber has been disclosed.
                if step == last:
                    after = last - int(scores[target]) + 1 if scores[target] else None
                    yield from (
                        Measure("count", "disclosed", each, float(after is not None and after <= each))
                        for each in params.steps
                    )
            elif attack != "path" or step == last:
                reached = _measure_scores(scores, target)
                if attack == "guards":
                    reached["belief"] = float(scores[target])
                yield from (Measure(attack, metric, step, value) for metric, value in reached.items())


def _measure_scores(scores: Scores, target: int) -> dict[str, float]:
    truth = np.arange(scores.size) == target
    return {
        "first": float(disclosure_time.is_first(scores, target)),
        "named": ranking.precision_at(scores, truth, 1),
        "auc": ranking.auc(scores, truth),
    }


def _measure_paths(
    village: TreeReaders, habit: TreePolicy, paths: PublicationPaths, params: TreeAttacks
) -> list[Measure]:
    """What P2 grants and claims about whole paths in one tree, the same for every step."""
    share = village.insiders.size / (village.nodes - 1)
    branching = tree.least_branching(village.nodes, habit.depth)
    found = {
        "owned": paths.owned,
        "claimed": share**habit.depth,
        "below_root": 1 - (1 - share) ** branching,
    }
    return [Measure("path", metric, params.steps[-1], value) for metric, value in found.items()]


_ATTACKS: Final = ("count", "lasting", "disclosed", "depth", "volume", "likelihood", "guards", "path")
_RUN: Final = "run"
_PATHS: Final = 2000
"""Publications whose holders from the origin on are examined."""

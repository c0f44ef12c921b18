"""P2's three definitions of anonymity, for trees: of publishers, of the readers of a topic, and of the topics of a
reader.

Users read topics, more users the more popular ones, and all subscriptions draw new trees in every epoch. The coalition
knows all topics. Definitions 2 and 3 are measured by how often each node was a parent in trees of a topic ("count"),
and by how often the same insider was told so ("lasting"). Publishers hand publications to an origin through the
anonymous network, which is taken to hide them. What remains is where publications go: a publisher that began them
itself would never be handed one ("origin"). The control has such publishers.

The model writes tables (`tree_tables`), and the attackers of the registry guess from them (`attack.insider.tree_job`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.tree_job import guess_from_trees
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.tree_params import TreeDefinitions
from veilcast.lab.measure import definitions, relay_success
from veilcast.lab.models import topic_mix, tree, tree_refreshes
from veilcast.lab.models.rng import stream
from veilcast.lab.models.tree_refreshes import TreeReaders
from veilcast.lab.runs.tree.attacks_model import make_tree_policy
from veilcast.lab.runs.tree.tree_tables import observe_trees, tabulate_truth


def run(
    params: TreeDefinitions, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    rng = np.random.default_rng(stream(seed, "readers"))
    reads = rng.random((params.nodes, params.topics)) < topic_mix.zipf_popularity(params.topics, params.ratio)
    insiders = tree.draw_nodes(params.nodes, max(1, round(params.insiders * params.nodes)), seed, "coalition")
    reads[insiders] = False
    if not reads.any():
        raise ConfigError("nobody reads anything; ratio is the share of users who read the most popular topic")
    readers, topics = np.nonzero(reads)
    village, habit, epochs = (
        TreeReaders(params.nodes, np.sort(insiders), readers, topics, seed),
        make_tree_policy(params),
        int(params.steps[-1]),
    )
    chosen = np.random.default_rng(stream(seed, "publisher")).choice(np.flatnonzero(village.honest))
    publisher = tree_refreshes.Publisher(int(chosen), params.origins == "own")
    entries = tree_refreshes.watch_refreshes(village, habit, epochs, params.publications, publisher)
    observed = observe_trees(_RUN, village, habit, entries, topics=params.topics)
    truth = tabulate_truth(_RUN, village, epochs, params.topics, publisher.node)
    guesses = attack_tables(observed, params, (), data)
    record_tables(recorder, observed | {"guesses": guesses, "truth": truth})
    return measure_guesses(guesses, truth, params, (), seed)


def attack_tables(
    observed: Mapping[str, AnyTable], params: TreeDefinitions, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers; or of all three, and of those that the parameters name."""
    return guess_from_trees(observed, names or (*_ATTACKS, *params.attacks), [int(step) for step in params.steps])


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: TreeDefinitions, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of all."""
    return [
        Measure(attack, metric, float(step), value)
        for attack in pc.unique(guesses["attack"]).to_pylist()
        if not names or attack in names
        for step in params.steps
        for metric, value in _measure_attack(guesses, truth, attack, int(step))
    ]


def _measure_attack(guesses: pa.Table, truth: pa.Table, attack: str, step: int) -> Iterator[tuple[str, float]]:
    rows = guesses.filter(pc.and_(pc.equal(guesses["attack"], attack), pc.equal(guesses["epochs"], step)))
    nodes, topics = (pc.unique(rows[column]).sort() for column in ("node", "topic"))

    def places(table: pa.Table) -> tuple[pa.Array, pa.Array]:
        return tuple(
            pc.index_in(table[column], names).to_numpy() for column, names in (("node", nodes), ("topic", topics))
        )

    scores = np.empty((len(nodes), len(topics)))
    scores[places(rows)] = rows["score"].to_numpy()
    role = rows["role"][0].as_py()
    labels = truth.filter(pc.equal(truth["role"], role))
    holds = np.zeros(scores.shape, np.bool_)
    holds[places(labels)] = True
    if role == "subscriber":
        yield from relay_success.measure_users(scores, holds).items()
    else:
        # Definition 1, for a publisher that is any honest node.
        [who] = np.flatnonzero(holds[:, 0])
        reached = definitions.measure_publisher(scores[:, 0], int(who), np.ones(len(nodes), np.bool_))
        yield "publisher", reached.probability
        yield "publisher_bound", reached.bound


_ATTACKS: Final = ("count", "lasting", "origin")
_RUN: Final = "run"

"""P2's three definitions of anonymity, for trees: of publishers, of the readers of a topic, and of the topics of a
reader.

Users read topics, more users the more popular ones, and all subscriptions draw new trees in every epoch. The coalition
knows all topics. Definitions 2 and 3 are measured by how often each node was a parent in trees of a topic ("count"),
and by how often the same insider was told so ("lasting"). Publishers hand publications to an origin through the
anonymous network. The only evidence of the coalition is that a node was on the path of a publication ("way"), and every
node is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.tree_params import TreeDefinitions
from veilcast.lab.measure import definitions, relay_success
from veilcast.lab.models import topic_mix, tree, tree_refreshes
from veilcast.lab.models.rng import stream
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.models.tree_refreshes import TreeReaders
from veilcast.lab.runs.tree.attacks_model import make_tree_policy

Mask = NDArray[np.bool_]


def run(params: TreeDefinitions, seed: int, data: Path | None = None) -> list[Measure]:
    rng = np.random.default_rng(stream(seed, "readers"))
    reads = rng.random((params.nodes, params.topics)) < topic_mix.zipf_popularity(params.topics, params.ratio)
    insiders = tree.draw_nodes(params.nodes, max(1, round(params.insiders * params.nodes)), seed, "coalition")
    reads[insiders] = False
    if not reads.any():
        raise ConfigError("nobody reads anything; ratio is the share of users who read the most popular topic")
    readers, topics = np.nonzero(reads)
    village = TreeReaders(params.nodes, np.sort(insiders), readers, topics, seed)
    entries = tree_refreshes.watch_refreshes(
        village, make_tree_policy(params), int(params.steps[-1]), params.publications
    )
    found = []
    for step in params.steps:
        seen = entries.before(int(step))
        for attack, scorer in (("count", tree_nodes.score_counts), ("lasting", tree_nodes.score_lasting)):
            by_topic = [
                tree_nodes.standardise_counts(scorer(seen.of_topic(topic), params.nodes))
                for topic in range(params.topics)
            ]
            scores = np.stack(by_topic, axis=1)[village.honest]
            reached = relay_success.measure_users(scores, reads[village.honest])
            found += [Measure(attack, metric, step, value) for metric, value in reached.items()]
        found += [Measure("way", metric, step, value) for metric, value in _publisher(seen, village).items()]
    return found


def _publisher(seen: TreeEntries, village: TreeReaders) -> dict[str, float]:
    """Definition 1, for a publisher that is any honest node."""
    rng = np.random.default_rng(stream(village.seed, "publisher"))
    who = int(rng.choice(np.flatnonzero(village.honest)))
    reached = definitions.measure_publisher(tree_nodes.score_volume(seen, village.nodes), who, village.honest)
    return {"publisher": reached.probability, "publisher_bound": reached.bound}

"""P2's three definitions, for trees: what a coalition reaches of who publishes, who reads a topic, and what one reads.

Users read topics, the most popular the most, and all of their subscriptions draw new trees in every epoch. The
coalition knows all topics. Definitions 2 and 3 are asked of how often each was a parent in trees of a topic ("count"),
and of how often the same node was told so ("lasting"). Publishers hand what they publish to an origin through the
anonymous network: all that the coalition can hold against somebody is to have been on the way of a publication ("way"),
and that is everybody.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack import parents
from veilcast.lab.kernels import refreshes, tokens, tree
from veilcast.lab.kernels.chance import stream
from veilcast.lab.kernels.entries import Entries
from veilcast.lab.kernels.refreshes import Village
from veilcast.lab.measure import definitions, relayed
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.tree_attacks import habit_of

Mask = NDArray[np.bool_]


def run(params: Params, seed: int) -> list[Measure]:
    params.heed("readers of trees", "tree", "insiders", "topics", "publications", "churn")
    rng = np.random.default_rng(stream(seed, "readers"))
    reads = rng.random((params.nodes, params.topics)) < tokens.zipf(params.topics, params.ratio)
    insiders = tree.some(params.nodes, max(1, round(params.insiders * params.nodes)), seed, "coalition")
    reads[insiders] = False
    if not reads.any():
        raise ConfigError("nobody reads anything; ratio is the share of users who read the most popular topic")
    readers, topics = np.nonzero(reads)
    village = Village(params.nodes, np.sort(insiders), readers, topics, seed)
    entries = refreshes.watched(village, habit_of(params), int(params.steps[-1]), params.publications)
    found = []
    for step in params.steps:
        seen = entries.until(int(step))
        for attack, scorer in (("count", parents.counts), ("lasting", parents.lasting)):
            by_topic = [parents.standing(scorer(seen.of(topic), params.nodes)) for topic in range(params.topics)]
            scores = np.stack(by_topic, axis=1)[village.honest]
            reached = relayed.of_users(scores, reads[village.honest])
            found += [Measure(attack, metric, step, value) for metric, value in reached.items()]
        found += [Measure("way", metric, step, value) for metric, value in _publisher(seen, village).items()]
    return found


def _publisher(seen: Entries, village: Village) -> dict[str, float]:
    """Definition 1, for somebody who publishes and is any of the honest."""
    rng = np.random.default_rng(stream(village.seed, "publisher"))
    who = int(rng.choice(np.flatnonzero(village.honest)))
    reached = definitions.publisher(parents.volume(seen, village.nodes), who, village.honest)
    return {"publisher": reached.probability, "publisher_bound": reached.bound}

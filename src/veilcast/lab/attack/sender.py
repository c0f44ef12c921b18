"""The sender: where stems met insiders, and who was there when notes came, put together for pairs of neighbours.

A publisher hands over to one neighbour for life, its successor. So what is sought is a pair (v, s): v has the note and
s has it next. Alone, a walk says how likely the steps that insiders saw are from s on (`predecessor`), and presence
says whether notes came only when v was there (`presence`), or s. Together they say far more: notes leave only while
both are there, and of some thousand pairs that presence leaves a handful of, few lie where the walk began.

Times are counted in epochs. Where notes leave once in several, at an epoch that nobody knows, a pair that was apart
just before is likelier to meet then; and only some of what leaves meets an insider. So each pair has for each epoch a
chance that something leaves, up to a factor that fits best. What readers get tells the same, later by what the root
holds it back: then the counts of an epoch are what left in those before, spread out.

If the successor is an insider itself, nothing is left to guess: all steps are from one neighbour to that insider.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from veilcast.lab.attack.pools import distances
from veilcast.lab.attack.predecessor import Step, relayed, steps
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.sights import Sights


def scores(
    graph: Graph,
    sights: Sights,
    passed: NDArray[np.int32],
    read: NDArray[np.integer],
    *,
    onward: float,
    departures: int = 0,
    hold: int = 0,
) -> NDArray[np.float64]:
    """By node, the log-likelihood that it publishes.

    `passed` is as in `predecessor.scores`, `read` has the number of notes that readers got in each epoch; `departures`
    and `hold` are what everybody knows of how the network is run.
    """
    enemy, far = sights.hostile, distances(graph, sights)
    first = np.repeat(np.arange(graph.nodes), graph.degrees)
    second = graph.targets
    total = -np.log(graph.degrees[first]) + _walked(graph, enemy, far, steps(passed, kept=True), onward)
    meets = sights.present[:, first] & sights.present[:, second]
    leaves, many = _leaving(meets, max(1, departures))
    noticed = np.zeros(len(read), np.int32)
    noticed[passed[:, 0]] = 1
    if noticed.any():
        total += _fit(noticed, leaves)
    if hold:
        total += _fit(read, _spread(many, hold))
    elif (noticed < (read > 0)).any():
        total += _fit(read > 0, leaves)
    total[enemy[first]] = -np.inf
    likelihood = np.bincount(first, np.exp(total - total.max()), graph.nodes)
    return np.asarray(np.log(likelihood + _TINY), np.float64)


def _walked(
    graph: Graph, enemy: NDArray[np.bool_], far: NDArray[np.int32], seen: list[Step], onward: float
) -> NDArray[np.float64]:
    """By pair, the log-likelihood of these steps."""
    total = np.zeros(graph.nodes)
    for step in seen:
        if not enemy[step.source]:
            total += np.log(relayed(graph, enemy, far[step.epoch], step, onward) + _NOISE)
    straight = np.zeros(graph.targets.size, np.bool_)
    if len(seen) == 1 and not seen[0].climbed:
        step = seen[0]
        begin, end = graph.offsets[step.source], graph.offsets[step.source + 1]
        straight[begin:end] = graph.targets[begin:end] == step.observer
    return np.where(enemy[graph.targets], np.where(straight, 0.0, _NEVER), total[graph.targets])


def _leaving(meets: NDArray[np.bool_], departures: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E x pairs: the chance that notes leave, who do as soon as a pair meets after a departure; and about how many."""
    chance, many, apart = np.zeros(meets.shape), np.zeros(meets.shape), np.zeros(meets.shape[1])
    for epoch, together in enumerate(meets):
        apart += 1
        chance[epoch] = together * (1 - (1 - 1 / departures) ** apart)
        many[epoch] = chance[epoch] * np.maximum(apart, departures)
        apart[together] = 0
    return chance, many


def _spread(many: NDArray[np.float64], hold: int) -> NDArray[np.float64]:
    """How many are read, when each note was held back for any number of epochs up to this."""
    added = np.vstack([np.zeros(many.shape[1]), np.cumsum(many, axis=0)])
    epochs = np.arange(len(many))
    return np.asarray((added[epochs + 1] - added[np.maximum(0, epochs - hold)]) / (hold + 1), np.float64)


def _fit(counts: NDArray[np.integer] | NDArray[np.bool_], chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """By pair, the log-likelihood of these counts where they are `chance` on the average, times what fits best.

    Ones and nothing else are coins, larger counts Poisson's.
    """
    factor = counts.sum() / np.maximum(chance.sum(axis=0), 1e-9)
    rows = np.asarray(counts, np.float64)[:, None]
    if counts.max(initial=0) > 1:
        mean = factor * chance + _MISTAKEN
        return np.asarray((xlogy(rows, mean) - mean - gammaln(rows + 1)).sum(axis=0), np.float64)
    mean = np.clip(np.minimum(factor, 1.0) * chance, _MISTAKEN, 1 - _MISTAKEN)
    return np.asarray((rows * np.log(mean) + (1 - rows) * np.log(1 - mean)).sum(axis=0), np.float64)


_MISTAKEN: Final = 1e-4
"""The probability that presence was not what it seemed."""
_NOISE: Final = 1e-6
"""What else may have brought a note to where it was seen, as a probability."""
_NEVER: Final = -60.0
_TINY: Final = 1e-30

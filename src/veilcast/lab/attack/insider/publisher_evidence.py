"""Evidence against the publisher from stems and presence: predecessor, presence, and both together.

Predecessor (Wright and others 2002): from which node does the first insider on a notification's path receive it? A
publisher hands its notification to a neighbour. Each relay hands it on with probability q, and otherwise the
notification climbs to the root. The node before the first insider is the publisher, or a relay near it. So each node v
is tried as the publisher: how likely does a walk of honest nodes from v end with this step? The publisher certainly
hands over and a relay may not, so the predecessor itself is likelier than the nodes behind it. Fresh walks betray the
publisher in the end: the evidence of each adds up. Where relays keep their choices for life, the same step says nothing
new and counts once. A notification that reaches an insider while climbing ended its stem anywhere from which a path
leads through the node it climbed from.

Presence: the publisher is present whenever something is published. This needs one subscriber and a view of presence.
With a publication in every epoch and a tenth of all others absent in each, the candidates shrink by a tenth each time:
an intersection attack that no overlay can prevent. If notifications are held back for up to a known number of epochs,
presence in any of those epochs counts, and the evidence thins out. A publisher that hands over to the same neighbour
for life, and waits while that neighbour is absent, is silent in exactly the epochs in which its successor is absent.
Subscribers that know that it would have published find the successor by its absences; the publisher is one of its
neighbours.

Both together: the target is a pair (v, s) of the publisher and its successor. The walk says how likely the observed
steps are from s on, and presence whether notifications came only while v, or s, was present. Notifications leave only
while both are present. Of some thousand pairs presence leaves a handful, and few of them lie where the walk began.
Times are counted in epochs. Where notifications leave once in several epochs, at an unknown one, a pair that was apart
just before is likelier to meet then, and only some of the departures meet an insider. So each pair has for each epoch a
probability of a departure, up to the factor that fits best. Subscribers see the same later, by the time that the root
holds it back: the counts of an epoch are then the spread-out departures of earlier ones. If the successor itself is an
insider, nothing is left to guess: all steps go from one neighbour to that insider.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from veilcast.lab.attack.insider.group_tests import origin_distances, path_probabilities
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import LinkObservations


def score_stems(
    graph: Graph,
    passed: NDArray[np.int32],
    enemy: NDArray[np.bool_],
    distance: NDArray[np.int32],
    onward: float,
    *,
    kept: bool,
) -> NDArray[np.float64]:
    """The log-likelihood that it publishes, by node; all equal if no insider was on the path.

    `passed` has rows (epoch, observer, from, to, whether it came climbing) in the order of each path. `enemy` marks the
    coalition. `distance` is E x nodes from the root. `onward` is q. `kept` says whether relays keep their choices.
    """
    total = np.zeros(graph.nodes)
    for step in find_first_steps(passed, kept=kept):
        if not enemy[step.source]:
            likelihood = _neighbour_mean(
                graph, enemy, relay_likelihood(graph, enemy, distance[step.epoch], step, onward)
            )
            if not step.climbed:
                likelihood[step.source] += 1.0 / graph.degree(step.source)
            total += np.log(likelihood + _STRAY)
    return total


class FirstStep(NamedTuple):
    """The step by which the first insider on a path received the notification."""

    epoch: int
    observer: int
    source: int
    climbed: bool


def find_first_steps(passed: NDArray[np.int32], *, kept: bool) -> list[FirstStep]:
    """The first step to an insider of every path; equal ones once, where choices are kept."""
    _, first = np.unique(passed[:, 0], return_index=True)
    found: dict[tuple[int, ...], FirstStep] = {}
    for epoch, observer, source, _, climbed in passed[first].tolist():
        found[(observer, source, climbed) if kept else (epoch,)] = FirstStep(epoch, observer, source, bool(climbed))
    return list(found.values())


def relay_likelihood(
    graph: Graph, enemy: NDArray[np.bool_], distance: NDArray[np.int32], step: FirstStep, onward: float
) -> NDArray[np.float64]:
    """The probability that a notification that it has as a relay takes this step, past no insider before, by node."""
    if step.climbed:
        here = (1.0 - onward) * path_probabilities(graph, enemy, distance, step.source)
    else:
        here = np.zeros(graph.nodes)
        here[step.source] = onward / graph.degree(step.source)
    total = here
    for _ in range(_STEPS):
        total = here + onward * _neighbour_mean(graph, enemy, total)
    return total


def score_presence(present: NDArray[np.bool_], published: NDArray[np.bool_], held: int = 0) -> NDArray[np.float64]:
    """The log-likelihood that it published in these epochs, by node; `present` is E x nodes.

    A notification may have been held back for 0 to `held` epochs, each equally likely. High presence alone says
    nothing, so the score compares presence at those times with presence at all.
    """
    usual = np.log((np.count_nonzero(present, axis=0) + 1) / (len(present) + 1))
    total = np.zeros(present.shape[1])
    for epoch in np.flatnonzero(published):
        total += np.log(present[max(0, epoch - held) : epoch + 1].mean(axis=0) + _PRESENCE_ERROR) - usual
    return total


def score_successors(present: NDArray[np.bool_], published: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The log-likelihood that a publisher with something to publish in every epoch waits for it, by node."""
    return np.asarray(np.log((present == published[:, None]) + _PRESENCE_ERROR).sum(axis=0), np.float64)


def score_behind_successor(graph: Graph, successor: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log-likelihood that it publishes, by node: any of its neighbours is equally likely the successor."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    weight = np.exp(successor - successor.max())
    shares = np.bincount(ends, weight[graph.targets], graph.nodes) / np.maximum(1, graph.degrees)
    return np.log(shares + _SMALLEST)


def score_stems_and_presence(
    graph: Graph,
    sights: LinkObservations,
    passed: NDArray[np.int32],
    read: NDArray[np.integer],
    *,
    onward: float,
    departures: int = 0,
    hold: int = 0,
) -> NDArray[np.float64]:
    """The log-likelihood that it publishes, by node.

    `passed` is as in `score_stems`. `read` has the number of notifications that subscribers received in each epoch.
    `departures` and `hold` are public parameters of the network.
    """
    enemy, far = sights.coalition, origin_distances(graph, sights)
    first = np.repeat(np.arange(graph.nodes), graph.degrees)
    second = graph.targets
    total = -np.log(graph.degrees[first]) + _walk_likelihood(
        graph, enemy, far, find_first_steps(passed, kept=True), onward
    )
    meets = sights.present[:, first] & sights.present[:, second]
    leaves, many = _departure_probabilities(meets, sights.present[:, first], max(1, departures))
    noticed = np.zeros(len(read), np.int32)
    noticed[passed[:, 0]] = 1
    if noticed.any():
        total += _count_likelihood(noticed, leaves)
    if hold:
        total += _count_likelihood(read, _spread_deliveries(many, hold))
    elif (noticed < (read > 0)).any():
        total += _count_likelihood(read > 0, leaves)
    total[enemy[first]] = -np.inf
    likelihood = np.bincount(first, np.exp(total - total.max()), graph.nodes)
    return np.asarray(np.log(likelihood + _TINY), np.float64)


def _neighbour_mean(graph: Graph, enemy: NDArray[np.bool_], of: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the neighbours of each node; insiders count as 0."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    share = np.where(enemy[graph.targets], 0.0, 1.0 / np.maximum(1, graph.degrees)[ends])
    return np.bincount(ends, share * of[graph.targets], graph.nodes).astype(np.float64)


def _walk_likelihood(
    graph: Graph, enemy: NDArray[np.bool_], far: NDArray[np.int32], seen: list[FirstStep], onward: float
) -> NDArray[np.float64]:
    """The log-likelihood of these steps, by pair."""
    total = np.zeros(graph.nodes)
    for step in seen:
        if not enemy[step.source]:
            total += np.log(relay_likelihood(graph, enemy, far[step.epoch], step, onward) + _NOISE)
    straight = np.zeros(graph.targets.size, np.bool_)
    if len(seen) == 1 and not seen[0].climbed:
        step = seen[0]
        begin, end = graph.offsets[step.source], graph.offsets[step.source + 1]
        straight[begin:end] = graph.targets[begin:end] == step.observer
    return np.where(enemy[graph.targets], np.where(straight, 0.0, _NEVER), total[graph.targets])


def _departure_probabilities(
    meets: NDArray[np.bool_], writes: NDArray[np.bool_], departures: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E x pairs: the probability that notifications leave, as they do when a pair first meets after a departure; and
    their expected number. A publisher writes only while it is present (`writes`); the rest waits for its successor."""
    chance, many, apart = np.zeros(meets.shape), np.zeros(meets.shape), np.zeros(meets.shape[1])
    written = np.zeros(meets.shape[1])
    for epoch, together in enumerate(meets):
        apart += 1
        written += writes[epoch]
        chance[epoch] = together * (1 - (1 - 1 / departures) ** apart)
        waiting = written if departures == 1 else np.maximum(apart, departures)
        many[epoch] = chance[epoch] * waiting
        apart[together] = written[together] = 0
    return chance, many


def _spread_deliveries(many: NDArray[np.float64], hold: int) -> NDArray[np.float64]:
    """Expected number of deliveries, if each notification is held back for any number of epochs up to `hold`."""
    added = np.vstack([np.zeros(many.shape[1]), np.cumsum(many, axis=0)])
    epochs = np.arange(len(many))
    return np.asarray((added[epochs + 1] - added[np.maximum(0, epochs - hold)]) / (hold + 1), np.float64)


def _count_likelihood(
    counts: NDArray[np.integer] | NDArray[np.bool_], chance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The log-likelihood of these counts, if their mean is `chance` times the factor that fits best, by pair.

    Counts of 0 and 1 alone are coins; larger counts are Poisson's.
    """
    factor = counts.sum() / np.maximum(chance.sum(axis=0), 1e-9)
    rows = np.asarray(counts, np.float64)[:, None]
    if counts.max(initial=0) > 1:
        mean = factor * chance + _MISTAKEN
        return np.asarray((xlogy(rows, mean) - mean - gammaln(rows + 1)).sum(axis=0), np.float64)
    mean = np.clip(np.minimum(factor, 1.0) * chance, _MISTAKEN, 1 - _MISTAKEN)
    return np.asarray((rows * np.log(mean) + (1 - rows) * np.log(1 - mean)).sum(axis=0), np.float64)


_STEPS: Final = 40
_STRAY: Final = 1e-6
"""Probability that the notification came there by another way."""
_PRESENCE_ERROR: Final = 1e-4
"""Probability that the observed presence is wrong."""
_SMALLEST: Final = 1e-30
_MISTAKEN: Final = 1e-4
"""Probability that the observed presence is wrong."""
_NOISE: Final = 1e-6
"""Probability that a notification came to where it was seen by another way."""
_NEVER: Final = -60.0
_TINY: Final = 1e-30

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


The predecessor attack on stems (Wright and others 2002): from whom the first insider on a note's way has it.

A publisher hands its note to a neighbour, each relay hands it on with probability q, and otherwise it climbs to the
root. Whoever it comes from to the first insider is the publisher itself, or a relay that had it from somebody near.
So each node v is tried as the publisher: how likely is it that a walk of honest nodes from v ends with this step.
The publisher surely hands over, a relay may not, so the predecessor itself is likelier than those behind it, and
fresh walks betray it in the end: the evidence adds up with each. Where relays keep their choices for life, the same
step says nothing new, and counts once. What comes to an insider climbing has ended its stem anywhere from where a way
leads through the one that it climbed from.


Presence: who publishes was there, whenever something was published. It needs one reader, and eyes for who is there.

With a publication in every epoch, and a tenth of all others away in each, the candidates shrink by a tenth each time:
an intersection attack that no overlay can help against. If notes are held back, for any number of epochs up to some
known one, presence in any of those counts, and the evidence thins out.

A publisher that hands over to the same neighbour for life, and waits while that one is away, is silent in just the
epochs in which its successor is not there. Readers who know that it would have had something to say find the successor
by its absences, and the publisher is one of its neighbours."""

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
    """By node, the log-likelihood that it publishes; all the same where no insider was on the way.

    `passed` has rows (epoch, observer, from whom, to whom, whether it came climbing) in the order of each way, `enemy`
    says who is of the coalition, `distance` is E x nodes from the root, `onward` is q, and `kept` whether relays keep
    their choices.
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
    """From whom the first insider on a way had the note."""

    epoch: int
    observer: int
    source: int
    climbed: bool


def find_first_steps(passed: NDArray[np.int32], *, kept: bool) -> list[FirstStep]:
    """The first step to an insider of every way; like ones once, where choices are kept."""
    _, first = np.unique(passed[:, 0], return_index=True)
    found: dict[tuple[int, ...], FirstStep] = {}
    for epoch, observer, source, _, climbed in passed[first].tolist():
        found[(observer, source, climbed) if kept else (epoch,)] = FirstStep(epoch, observer, source, bool(climbed))
    return list(found.values())


def relay_likelihood(
    graph: Graph, enemy: NDArray[np.bool_], distance: NDArray[np.int32], step: FirstStep, onward: float
) -> NDArray[np.float64]:
    """By node, how likely it is that a note that it has as a relay takes this step, past no insider before."""
    if step.climbed:
        here = (1.0 - onward) * path_probabilities(graph, enemy, distance, step.source)
    else:
        here = np.zeros(graph.nodes)
        here[step.source] = onward / graph.degree(step.source)
    total = here
    for _ in range(_STEPS):
        total = here + onward * _neighbour_mean(graph, enemy, total)
    return total


def _neighbour_mean(graph: Graph, enemy: NDArray[np.bool_], of: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the neighbours of each node, of whom insiders count nothing."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    share = np.where(enemy[graph.targets], 0.0, 1.0 / np.maximum(1, graph.degrees)[ends])
    return np.bincount(ends, share * of[graph.targets], graph.nodes).astype(np.float64)


_STEPS: Final = 40
_STRAY: Final = 1e-6
"""What else may have brought it there, as a probability."""


def score_presence(present: NDArray[np.bool_], published: NDArray[np.bool_], held: int = 0) -> NDArray[np.float64]:
    """By node, the log-likelihood that it published in these epochs; `present` is E x nodes.

    A note may have been held back for 0 to `held` epochs, each equally likely. That somebody is there more often than
    others says nothing by itself, so it is presence then against presence at all that counts.
    """
    usual = np.log((np.count_nonzero(present, axis=0) + 1) / (len(present) + 1))
    total = np.zeros(present.shape[1])
    for epoch in np.flatnonzero(published):
        total += np.log(present[max(0, epoch - held) : epoch + 1].mean(axis=0) + _PRESENCE_ERROR) - usual
    return total


def score_successors(present: NDArray[np.bool_], published: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By node, the log-likelihood that somebody who would publish in every epoch waits for it."""
    return np.asarray(np.log((present == published[:, None]) + _PRESENCE_ERROR).sum(axis=0), np.float64)


def score_behind_successor(graph: Graph, successor: NDArray[np.float64]) -> NDArray[np.float64]:
    """By node, the log-likelihood that it publishes: that any of its neighbours, as likely as another, is the one."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    weight = np.exp(successor - successor.max())
    shares = np.bincount(ends, weight[graph.targets], graph.nodes) / np.maximum(1, graph.degrees)
    return np.log(shares + _SMALLEST)


_PRESENCE_ERROR: Final = 1e-4
"""The probability that presence was not what it seemed."""
_SMALLEST: Final = 1e-30


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
    """By node, the log-likelihood that it publishes.

    `passed` is as in `predecessor.scores`, `read` has the number of notes that readers got in each epoch; `departures`
    and `hold` are what everybody knows of how the network is run.
    """
    enemy, far = sights.coalition, origin_distances(graph, sights)
    first = np.repeat(np.arange(graph.nodes), graph.degrees)
    second = graph.targets
    total = -np.log(graph.degrees[first]) + _walked(graph, enemy, far, find_first_steps(passed, kept=True), onward)
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
    graph: Graph, enemy: NDArray[np.bool_], far: NDArray[np.int32], seen: list[FirstStep], onward: float
) -> NDArray[np.float64]:
    """By pair, the log-likelihood of these steps."""
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

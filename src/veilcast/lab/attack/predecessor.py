"""The predecessor attack on stems (Wright and others 2002): from whom the first insider on a note's way has it.

A publisher hands its note to a neighbour, each relay hands it on with probability q, and otherwise it climbs to the
root. Whoever it comes from to the first insider is the publisher itself, or a relay that had it from somebody near.
So each node v is tried as the publisher: how likely is it that a walk of honest nodes from v ends with this step.
The publisher surely hands over, a relay may not, so the predecessor itself is likelier than those behind it, and
fresh walks betray it in the end: the evidence adds up with each. Where relays keep their choices for life, the same
step says nothing new, and counts once. What comes to an insider climbing has ended its stem anywhere from where a way
leads through the one that it climbed from.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.pools import leading
from veilcast.lab.kernels.graph import Graph


def scores(
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
    for step in steps(passed, kept=kept):
        if not enemy[step.source]:
            likelihood = _mean(graph, enemy, relayed(graph, enemy, distance[step.epoch], step, onward))
            if not step.climbed:
                likelihood[step.source] += 1.0 / graph.degree(step.source)
            total += np.log(likelihood + _NOISE)
    return total


class Step(NamedTuple):
    """From whom the first insider on a way had the note."""

    epoch: int
    observer: int
    source: int
    climbed: bool


def steps(passed: NDArray[np.int32], *, kept: bool) -> list[Step]:
    """The first step to an insider of every way; like ones once, where choices are kept."""
    _, first = np.unique(passed[:, 0], return_index=True)
    found: dict[tuple[int, ...], Step] = {}
    for epoch, observer, source, _, climbed in passed[first].tolist():
        found[(observer, source, climbed) if kept else (epoch,)] = Step(epoch, observer, source, bool(climbed))
    return list(found.values())


def relayed(
    graph: Graph, enemy: NDArray[np.bool_], distance: NDArray[np.int32], step: Step, onward: float
) -> NDArray[np.float64]:
    """By node, how likely it is that a note that it has as a relay takes this step, past no insider before."""
    if step.climbed:
        here = (1.0 - onward) * leading(graph, enemy, distance, step.source)
    else:
        here = np.zeros(graph.nodes)
        here[step.source] = onward / graph.degree(step.source)
    total = here
    for _ in range(_STEPS):
        total = here + onward * _mean(graph, enemy, total)
    return total


def _mean(graph: Graph, enemy: NDArray[np.bool_], of: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the neighbours of each node, of whom insiders count nothing."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    share = np.where(enemy[graph.targets], 0.0, 1.0 / np.maximum(1, graph.degrees)[ends])
    return np.bincount(ends, share * of[graph.targets], graph.nodes).astype(np.float64)


_STEPS: Final = 40
_NOISE: Final = 1e-6
"""What else may have brought it there, as a probability."""

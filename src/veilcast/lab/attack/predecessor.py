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

from typing import Final

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
    _, first = np.unique(passed[:, 0], return_index=True)
    steps = {}
    for epoch, _, source, _, climbed in passed[first].tolist():
        steps[(source, climbed) if kept else epoch] = (epoch, source, climbed)
    total = np.zeros(graph.nodes)
    for epoch, source, climbed in steps.values():
        if enemy[source]:
            continue
        if climbed:
            ended = (1.0 - onward) * leading(graph, enemy, distance[epoch], source)
            likelihood = _handed(graph, enemy, ended, onward)
        else:
            step = np.zeros(graph.nodes)
            step[source] = 1.0 / graph.degree(source)
            likelihood = step + _handed(graph, enemy, onward * step, onward)
        total += np.log(likelihood + _NOISE)
    return total


def _handed(graph: Graph, enemy: NDArray[np.bool_], here: NDArray[np.float64], onward: float) -> NDArray[np.float64]:
    """By node, how likely a note that it hands over comes to its goal, which relays reach with probability `here`."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    share = np.where(enemy[graph.targets], 0.0, 1.0 / graph.degrees[ends])

    def step(of: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean over neighbours, of whom insiders count nothing."""
        return np.bincount(ends, share * of[graph.targets], graph.nodes).astype(np.float64)

    relayed = here
    for _ in range(_STEPS):
        relayed = here + onward * step(relayed)
    return step(relayed)


_STEPS: Final = 40
_NOISE: Final = 1e-6
"""What else may have brought it there, as a probability."""

"""Group testing by belief propagation: who asks, given which pools were active (`pools`).

Every test is a noisy OR: a pool is active unless each of its members is idle or goes another way, and nothing else
caused it. Each test tells each of its members the log-likelihood ratio of the result with and without it, the others
being taken as they are believed to be; each member tells each test what the others make of it. Pools share members in
loops, and ways are taken to be independent where they join, so this is an approximation; a few rounds with damping do,
and the order of the scores, which is all that is used, hardly changes after them (Sejdinovic and Johnson 2010).

Every result may be wrong with a small probability, so that no message is certain and contradictions are borne.
"""

from __future__ import annotations

from math import exp, log, log1p
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.pools import Pools
from veilcast.lab.kernels.compiled import compiled


def beliefs(tests: Pools, nodes: int, prior: float) -> NDArray[np.float64]:
    """By node, the log-odds that it asks; `prior` is the share of those who do."""
    return _beliefs(
        tests.positive,
        tests.sight,
        tests.quiet,
        tests.weight,
        tests.offsets,
        tests.member,
        tests.reach,
        nodes,
        prior,
        _ROUNDS,
    )


@compiled
def _beliefs(
    positive: NDArray[np.bool_],
    sight: NDArray[np.float64],
    quiet: NDArray[np.float64],
    weight: NDArray[np.float64],
    offsets: NDArray[np.int64],
    member: NDArray[np.int32],
    reach: NDArray[np.float64],
    nodes: int,
    prior: float,
    rounds: int,
) -> NDArray[np.float64]:
    odds = log(prior / (1.0 - prior))
    told, belief = np.zeros(member.size), np.full(nodes, odds)
    idle = np.empty(member.size)
    for _ in range(rounds):
        after = np.full(nodes, odds)
        for test in range(positive.size):
            total = log(max(_TINY, quiet[test]))
            for at in range(offsets[test], offsets[test + 1]):
                others = belief[member[at]] - told[at]
                idle[at] = log1p(-min(_SURE, reach[at] / (1.0 + exp(-others))))
                total += idle[at]
            for at in range(offsets[test], offsets[test + 1]):
                rest = exp(total - idle[at])
                with_it, without = (1.0 - reach[at]) * rest, rest
                if positive[test]:
                    said = log((1.0 - with_it + _WRONG) / (1.0 - without + _WRONG))
                else:
                    missed = 1.0 - sight[test] + _WRONG
                    said = log((missed + sight[test] * with_it) / (missed + sight[test] * without))
                told[at] += _DAMPING * (weight[test] * said - told[at])
                after[member[at]] += told[at]
        belief = after
    return belief


_ROUNDS: Final = 12
_DAMPING: Final = 0.6
_WRONG: Final = 1e-3
"""The probability that a result is not what the model says."""
_SURE: Final = 1.0 - 1e-9
_TINY: Final = 1e-12

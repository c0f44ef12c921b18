"""Attackers that see the branchings of lineages, and nothing else.

The worst case for Moran branching (`foil.generators`): slots are followed perfectly, and the parent and the child of
every branching are seen. Values add nothing, because all slots move alike. Both attackers guess at the last step.

- `score_told` learns after a delay which slot was the truth, and knows how branchings are drawn. A branching is
  `child_odds` times as likely with the truth as the parent as without it. Afterwards the truth is in either of the two
  slots. So its belief passes from parent to child, and is exact.
- `score_counting` is told nothing. It takes the slot with the fewest branchings among its ancestors for the truth. It
  finds a truth that becomes a parent no more often than any other slot.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.stream.model import Candidates, Numbers, Posterior, SeenBranchings, StreamModel, require_known

Numbered = NDArray[np.int64]


def score_told(candidates: Candidates, model: StreamModel) -> Posterior:
    told, slots = require_known(model.told_slot), candidates.shape[2]
    belief = np.ones((len(candidates), slots))
    known = told >= 0
    belief[known] = np.arange(slots) == told[known, None]
    for event, stream, parent, child in _by_event(require_known(model.branchings)):
        # What came before the truth was public says nothing about later slots.
        later = ~known[stream] | (event >= model.told_event)
        belief[stream[later]] = _pass_belief(belief[stream[later]], parent[later], child[later], model.child_odds)
    return _at_the_end(candidates, belief)


def score_counting(candidates: Candidates, model: StreamModel) -> Posterior:
    counts = np.zeros((len(candidates), candidates.shape[2]))
    for _, stream, parent, child in _by_event(require_known(model.branchings)):
        counts[stream] = _count_branching(counts[stream], parent, child)
    return _at_the_end(candidates, 2.0**-counts)


def _by_event(seen: SeenBranchings) -> Iterator[tuple[int, Numbered, Numbered, Numbered]]:
    """The streams that branch at one moment, moment by moment."""
    order = np.argsort(seen.event, kind="stable")
    event, stream, parent, child = (column[order] for column in seen)
    numbers, first = np.unique(event, return_index=True)
    for number, start, end in zip(numbers.tolist(), first, np.append(first, event.size)[1:], strict=True):
        yield number, stream[start:end], parent[start:end], child[start:end]


def _at_the_end(candidates: Candidates, belief: Numbers) -> Posterior:
    found = np.full(candidates.shape, -1.0)
    found[:, -1] = belief
    return found


def _pass_belief(belief: Numbers, parent: Numbered, child: Numbered, odds: float) -> Numbers:
    rows = np.arange(len(belief))
    after = belief.copy()
    after[rows, parent] = after[rows, child] = odds / 2 * belief[rows, parent]
    total: Numbers = after.sum(axis=1, keepdims=True)
    return after / total


def _count_branching(counts: Numbers, parent: Numbered, child: Numbered) -> Numbers:
    rows = np.arange(len(counts))
    after = counts.copy()
    after[rows, parent] += 1
    after[rows, child] = after[rows, parent]
    # Only differences count, and large negative powers of two would vanish.
    fewest: Numbers = after.min(axis=1, keepdims=True)
    return after - fewest

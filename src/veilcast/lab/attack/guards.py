"""Guards against guards: what members of a chain that know how it is made can tell of who stands on it.

A guard of the coalition knows that it is one, for it is told to hand on to the same node in each refresh; with good
clocks it knows how many hops behind the root it stands; and it knows the next one. So of a chain whose places behind
the root are 1, 2, ..., some are taken by the coalition, and those right behind these are known by name. The subscriber
stands at a place that is not the coalition's, each of those that the recipe allows being as likely as another: its mass
falls on a name where there is one, and on everybody else where there is none.

Where guards come and go, time says more. Who is named at a place and changes was no subscriber, and who stays while
guards would have gone is one all the more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.entries import Entries

Scores = NDArray[np.float64]


class Link(NamedTuple):
    """What was seen right behind one place of a chain."""

    names: frozenset[int]
    stays: float
    """The log-likelihood of it, if it is a guard who stands there."""


def scores(entries: Entries, honest: NDArray[np.bool_], allowed: Sequence[int], turnover: float) -> Scores:
    """By node, the probability that it is the subscriber. `allowed` are the places where it may stand, counted from the
    root; `turnover` is the probability with which a guard is gone by the next refresh."""
    crowd = int(np.count_nonzero(honest))
    places = np.unique(entries.behind[entries.behind >= 0]).tolist()
    links = {place: _link(entries, place, turnover, crowd) for place in places}
    # The near end of the chain is no subscriber, though somebody at the root may name it.
    named = {name for link in links.values() for name in link.names}
    rest = honest.copy()
    rest[[*named]] = False
    choices: list[tuple[NDArray[np.bool_], float]] = []
    for place in allowed:
        before = links.get(place - 1)
        if place in links:
            continue  # It is the coalition's own.
        if before is None:
            choices.append((rest, 0.0))
        elif len(before.names) == 1:
            choices.append((np.isin(np.arange(honest.size), [*before.names]) & honest, -before.stays))
    choices = [(who, weight) for who, weight in choices if who.any()]
    if not choices:
        return np.asarray(honest / crowd, np.float64)
    most = max(weight for _, weight in choices)
    found = sum((np.exp(weight - most) * who / np.count_nonzero(who) for who, weight in choices), np.zeros(honest.size))
    return np.asarray(found / found.sum(), np.float64)


def _link(entries: Entries, place: int, turnover: float, crowd: int) -> Link:
    """By what each refresh shows of a place, in order; several chains of one topic are taken for one."""
    here = entries.behind == place
    order = np.argsort(entries.refresh[here], kind="stable")
    when, who = entries.refresh[here][order], entries.parent[here][order]
    stays = 0.0
    for gap, same in zip(np.diff(when).tolist(), (who[1:] == who[:-1]).tolist(), strict=True):
        kept = (1.0 - turnover) ** gap
        stays += np.log(max(kept if same else 0.0, _NOISE) + (1.0 - kept) / crowd)
    return Link(frozenset(who.tolist()), float(stays))


_NOISE: Final = 1e-300

"""Insiders against the publisher: what a coalition makes of adverts, of stems, and of who is there.

Adverts and stems come in every epoch, and each is evidence by itself; first-spy and trilateration take the share of
epochs, or the mean fit, in favour of a node. A coalition needs no more than some tens of values to trilaterate, and
takes so many of those that it has.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.chain import LENGTH_MAX, advance
from veilcast.lab.attack import first_spy, predecessor, presence, sender, trilateration
from veilcast.lab.attack.pools import distances
from veilcast.lab.kernels import adverts, hardened
from veilcast.lab.kernels.chance import stream
from veilcast.lab.kernels.epochs import Conduct, Epoch, Population
from veilcast.lab.kernels.habits import key_of
from veilcast.lab.kernels.insiders import View, links

Scores = NDArray[np.float64]


class Spies:
    """What a coalition makes of the adverts that it has been shown, in turn."""

    def __init__(self, people: Population, *, together: bool) -> None:
        """`together` says that all nodes beat at the same moments."""
        self._people, self._together = people, together
        self._observer, self._peer = links(people)
        some = stream(people.seed, "voices")
        order = np.random.default_rng(some).permutation(self._peer.size)
        self._voices = np.sort(order[:_VOICES])
        self.first: list[Scores] = []
        """By epoch and node, the chance that first-spy names it."""
        self.fit: list[Scores] = []
        """By epoch and node, how well it fits the chain as the origin; 0 is best."""

    def hear(self, epoch: Epoch) -> None:
        graph, root, seed = epoch.graph, epoch.found.root, self._people.seed
        key = key_of(seed, "beats", epoch.number)
        takes = adverts.together(graph) if self._together else adverts.apart(graph, key)
        at = adverts.heard(graph, root, self._observer, self._peer, takes)
        told = np.isfinite(at)
        self.first.append(_named(first_spy.scores(self._peer[told], at[told], graph.nodes)))
        voices = self._peer[self._voices][told[self._voices]]
        if voices.size:
            # What hop a value is at depends on where the chain begins, which nobody knows.
            start = int(key_of(seed, "chain", epoch.number)).to_bytes(32, "big")
            values = [advance(start, min(int(hops), LENGTH_MAX)) for hops in epoch.found.distance[voices]]
            self.fit.append(trilateration.scores(graph, voices, values))
        else:
            self.fit.append(np.zeros(graph.nodes))


def by_stems(people: Population, view: View, conduct: Conduct, epochs: int) -> Scores:
    """By node, the log-likelihood that it publishes, from where stems met insiders.

    The coalition knows when a publisher has another first relay, as if it had silenced each: the walks of each relay
    are evidence by themselves.
    """
    total = np.zeros(people.graph.nodes)
    for first, end in _stages(conduct, epochs):
        far = distances(people.graph, view.during(first, end))
        passed = _passed(view, first, end)
        total += predecessor.scores(people.graph, passed, people.insiders, far, hardened.ONWARD, kept=True)
    return total


def by_presence(people: Population, view: View, conduct: Conduct, epochs: int) -> Scores:
    """The same from who was there when something was published, and, where publishers wait for a successor, from who
    was away when nothing was."""
    present, published = view.present[:epochs], view.read[:epochs] > 0
    found = presence.publishers(present, published, conduct.hold)
    if published.all() or conduct.departures > 1 or conduct.hold:
        return found
    for first, end in _stages(conduct, epochs):
        found = found + presence.behind(people.graph, presence.successors(present[first:end], published[first:end]))
    return found


def by_both(people: Population, view: View, conduct: Conduct, epochs: int) -> Scores:
    """The same from stems and presence together."""
    scores = [
        sender.scores(
            people.graph,
            view.during(first, end),
            _passed(view, first, end),
            view.read[first:end],
            onward=hardened.ONWARD,
            departures=conduct.departures,
            hold=conduct.hold,
        )
        for first, end in _stages(conduct, epochs)
    ]
    return np.asarray(np.sum(scores, axis=0), np.float64)


def _stages(conduct: Conduct, epochs: int) -> list[tuple[int, int]]:
    """The epochs of each first relay."""
    length = conduct.relay_epochs or epochs
    return [(first, min(first + length, epochs)) for first in range(0, epochs, length)]


def _passed(view: View, first: int, end: int) -> NDArray[np.int32]:
    """Where stems met insiders in these epochs, which are counted from 0."""
    passed = view.passed[(view.passed[:, 0] >= first) & (view.passed[:, 0] < end)]
    return np.asarray(passed - np.array([first, 0, 0, 0, 0], np.int32), np.int32)


def _named(scores: Scores) -> Scores:
    """The first guess, shared among those who have the same score."""
    best = scores == scores.max()
    return np.asarray(best / np.count_nonzero(best), np.float64)


_VOICES: Final = 64

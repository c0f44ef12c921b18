"""Insiders against the publisher: what a coalition makes of adverts, of stems, and of who is there.

Adverts and stems come in every epoch, and each is evidence by itself; first-spy and trilateration take the share of
epochs, or the mean fit, in favour of a node. A coalition needs no more than some tens of values to trilaterate, and
takes so many of those that it has.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX, advance_chain
from veilcast.lab.attack.insider import advert_origin, publisher_evidence
from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.models import advert_timing, hardened_mesh
from veilcast.lab.models.coalition_view import CoalitionView, insider_links
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.rng import stream

Scores = NDArray[np.float64]


class AdvertObserver:
    """What a coalition makes of the adverts that it has been shown, in turn."""

    def __init__(self, people: Population, *, together: bool) -> None:
        """`together` says that all nodes beat at the same moments."""
        self._people, self._together = people, together
        self._observer, self._peer = insider_links(people)
        some = stream(people.seed, "voices")
        order = np.random.default_rng(some).permutation(self._peer.size)
        self._voices = np.sort(order[:_VOICES])
        self.first: list[Scores] = []
        """By epoch and node, the chance that first-spy names it."""
        self.fit: list[Scores] = []
        """By epoch and node, how well it fits the chain as the origin; 0 is best."""

    def hear(self, epoch: Epoch) -> None:
        graph, root, seed = epoch.graph, epoch.root_paths.root, self._people.seed
        key = derive_key(seed, "beats", epoch.number)
        takes = advert_timing.equal_delays(graph) if self._together else advert_timing.random_delays(graph, key)
        at = advert_timing.arrival_times(graph, root, self._observer, self._peer, takes)
        told = np.isfinite(at)
        self.first.append(_named(advert_origin.rank_first_spy(self._peer[told], at[told], graph.nodes)))
        voices = self._peer[self._voices][told[self._voices]]
        if voices.size:
            # What hop a value is at depends on where the chain begins, which nobody knows.
            start = int(derive_key(seed, "chain", epoch.number)).to_bytes(32, "big")
            values = [advance_chain(start, min(int(hops), LENGTH_MAX)) for hops in epoch.root_paths.distance[voices]]
            self.fit.append(advert_origin.score_trilateration(graph, voices, values))
        else:
            self.fit.append(np.zeros(graph.nodes))


def score_by_stems(people: Population, view: CoalitionView, conduct: MeshPolicy, epochs: int) -> Scores:
    """By node, the log-likelihood that it publishes, from where stems met insiders.

    The coalition knows when a publisher has another first relay, as if it had silenced each: the walks of each relay
    are evidence by themselves.
    """
    total = np.zeros(people.graph.nodes)
    for first, end in _stages(conduct, epochs):
        far = origin_distances(people.graph, view.epoch_range(first, end))
        passed = _passed(view, first, end)
        total += publisher_evidence.score_stems(
            people.graph, passed, people.insiders, far, hardened_mesh.ONWARD_PROBABILITY, kept=True
        )
    return total


def score_by_presence(people: Population, view: CoalitionView, conduct: MeshPolicy, epochs: int) -> Scores:
    """The same from who was there when something was published, and, where publishers wait for a successor, from who
    was away when nothing was."""
    present, published = view.present[:epochs], view.delivered[:epochs] > 0
    found = publisher_evidence.score_presence(present, published, conduct.hold)
    if published.all() or conduct.departures > 1 or conduct.hold:
        return found
    for first, end in _stages(conduct, epochs):
        found = found + publisher_evidence.score_behind_successor(
            people.graph, publisher_evidence.score_successors(present[first:end], published[first:end])
        )
    return found


def score_by_both(people: Population, view: CoalitionView, conduct: MeshPolicy, epochs: int) -> Scores:
    """The same from stems and presence together."""
    scores = [
        publisher_evidence.score_stems_and_presence(
            people.graph,
            view.epoch_range(first, end),
            _passed(view, first, end),
            view.delivered[first:end],
            onward=hardened_mesh.ONWARD_PROBABILITY,
            departures=conduct.departures,
            hold=conduct.hold,
        )
        for first, end in _stages(conduct, epochs)
    ]
    return np.asarray(np.sum(scores, axis=0), np.float64)


def _stages(conduct: MeshPolicy, epochs: int) -> list[tuple[int, int]]:
    """The epochs of each first relay."""
    length = conduct.relay_epochs or epochs
    return [(first, min(first + length, epochs)) for first in range(0, epochs, length)]


def _passed(view: CoalitionView, first: int, end: int) -> NDArray[np.int32]:
    """Where stems met insiders in these epochs, which are counted from 0."""
    passed = view.stem_passages[(view.stem_passages[:, 0] >= first) & (view.stem_passages[:, 0] < end)]
    return np.asarray(passed - np.array([first, 0, 0, 0, 0], np.int32), np.int32)


def _named(scores: Scores) -> Scores:
    """The first guess, shared among those who have the same score."""
    best = scores == scores.max()
    return np.asarray(best / np.count_nonzero(best), np.float64)


_VOICES: Final = 64

"""The adverts that a coalition hears in a model run, with their times and chain values.

Each insider hears an advert from each of its honest neighbours, when the flood reaches that neighbour. Some tens of
chain values suffice for trilateration, so the coalition uses at most `_VOICES` of its links.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX, advance_chain
from veilcast.lab.attack.insider.observations import (
    CoalitionObservations,
    HeardAdverts,
    HeardChains,
    PublicKnowledge,
)
from veilcast.lab.models import advert_delays
from veilcast.lab.models.coalition_view import CoalitionView, insider_links
from veilcast.lab.models.epochs import Epoch, Population
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.link_observations import LinkObservations
from veilcast.lab.models.rng import stream


class AdvertObserver:
    """The adverts of all epochs that the coalition has heard so far."""

    def __init__(self, people: Population, *, together: bool) -> None:
        """`together` says that all nodes beat at the same moments."""
        self._people, self._together = people, together
        self._observer, self._peer = insider_links(people)
        order = np.random.default_rng(stream(people.seed, "voices")).permutation(self._peer.size)
        self._voices = np.sort(order[:_VOICES])
        self._first: list[tuple[int, NDArray[np.int32]]] = []
        """By epoch, the neighbours that sent the advert first, once for each insider."""
        self._chains: list[tuple[int, NDArray[np.int32], list[bytes]]] = []
        self._overlays: list[Graph] = []

    def hear(self, epoch: Epoch) -> None:
        graph, root, seed, number = epoch.graph, epoch.root_paths.root, self._people.seed, epoch.number
        key = derive_key(seed, "beats", number)
        takes = advert_delays.equal_delays(graph) if self._together else advert_delays.random_delays(graph, key)
        at = advert_delays.arrival_times(graph, root, self._observer, self._peer, takes)
        heard = np.isfinite(at)
        self._first.append((number, self._peer[heard & (at == at[heard].min(initial=np.inf))]))
        voices = self._peer[self._voices][heard[self._voices]]
        # The coalition does not know where the chain begins, so it does not know the hop of a value.
        start = int(derive_key(seed, "chain", number)).to_bytes(32, "big")
        values = [advance_chain(start, min(int(hops), LENGTH_MAX)) for hops in epoch.root_paths.distance[voices]]
        self._chains.append((number, voices, values))
        self._overlays.append(graph)

    def observe_coalition(
        self, view: CoalitionView | None, epochs: int, known: PublicKnowledge
    ) -> CoalitionObservations:
        """The coalition's observations of the first epochs; without a view, its adverts alone."""
        people = self._people
        adverts = np.concatenate([np.full(len(peer), epoch) for epoch, peer in self._first] or [_NO_EPOCHS])
        peers = np.concatenate([peer for _, peer in self._first] or [_NO_NODES])
        chains = np.concatenate([np.full(len(peer), epoch) for epoch, peer, _ in self._chains] or [_NO_EPOCHS])
        voices = np.concatenate([peer for _, peer, _ in self._chains] or [_NO_NODES])
        values = [value for _, _, values in self._chains for value in values]
        whole = CoalitionObservations(
            graph=people.graph,
            hostile=people.insiders,
            seen=_no_view(people, epochs) if view is None else view,
            passed=np.empty((0, 5), np.int32) if view is None else view.stem_passages,
            adverts=HeardAdverts(adverts, adverts, peers),
            chains=HeardChains(chains, voices, values),
            read=np.zeros(epochs, np.int32) if view is None else view.delivered,
            known=known,
            overlays=tuple(self._overlays),
        )
        return whole.first_epochs(epochs)


def _no_view(people: Population, epochs: int) -> LinkObservations:
    nobody, links = np.empty(0, np.int32), (epochs, 0)
    return LinkObservations(
        nobody,
        nobody,
        np.zeros(epochs, np.int32),
        np.ones((epochs, people.graph.nodes), np.bool_),
        np.empty(links, np.int8),
        np.empty(links, np.int16),
        np.empty((0, 6), np.int32),
    )


_VOICES: Final = 64
_NO_EPOCHS: Final = np.empty(0, np.int64)
_NO_NODES: Final = np.empty(0, np.int32)

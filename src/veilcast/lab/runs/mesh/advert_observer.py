"""The adverts that a coalition hears in a model run, with their times and chain values.

Each insider hears an advert from each of its honest neighbours, when the flood reaches that neighbour. Some tens of
chain values suffice for trilateration, so the coalition records them on at most `_VOICES` of its links.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX, advance_chain
from veilcast.lab.models import advert_delays
from veilcast.lab.models.coalition_view import insider_links
from veilcast.lab.models.epochs import Epoch, Population
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.rng import stream


class EpochAdverts(NamedTuple):
    """The adverts of an epoch, by link."""

    observer: NDArray[np.int32]
    peer: NDArray[np.int32]
    after_us: NDArray[np.int64]
    """Time after the first of them."""
    chain: list[bytes]
    """Empty where no chain value was recorded."""


class AdvertObserver:
    """The coalition's ears for adverts."""

    def __init__(self, people: Population, *, together: bool) -> None:
        """`together` says that all nodes beat at the same moments."""
        self._people, self._together = people, together
        self._observer, self._peer = insider_links(people)
        order = np.random.default_rng(stream(people.seed, "voices")).permutation(self._peer.size)
        self._voices = np.zeros(self._peer.size, np.bool_)
        self._voices[order[:_VOICES]] = True

    def hear(self, epoch: Epoch) -> EpochAdverts:
        graph, root, seed, number = epoch.graph, epoch.root_paths.root, self._people.seed, epoch.number
        key = derive_key(seed, "beats", number)
        takes = advert_delays.equal_delays(graph) if self._together else advert_delays.random_delays(graph, key)
        at = advert_delays.arrival_times(graph, root, self._observer, self._peer, takes)
        heard = np.isfinite(at)
        # Rounded up, so that only those that came first of all stand at the beginning.
        after = np.ceil((at[heard] - at[heard].min(initial=np.inf)) * _BEAT_US).astype(np.int64)
        # The coalition does not know where the chain begins, so it does not know the hop of a value.
        start = int(derive_key(seed, "chain", number)).to_bytes(32, "big")
        far = zip(epoch.root_paths.distance[self._peer[heard]].tolist(), self._voices[heard].tolist(), strict=True)
        values = [advance_chain(start, min(hops, LENGTH_MAX)) if recorded else b"" for hops, recorded in far]
        return EpochAdverts(self._observer[heard], self._peer[heard], after, values)


_VOICES: Final = 64
_BEAT_US: Final = 1_000_000

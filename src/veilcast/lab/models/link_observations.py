"""Observations of a coalition on its links: arrays over epochs and links, with codes for what a link shows.

Models and taps fill the arrays, and attackers read them. This module stands alone, so that an attacker imports nothing
that knows the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LinkObservations:
    """E epochs, and L links between an insider and an honest neighbour."""

    observer: NDArray[np.int32]
    """L: the insider."""
    peer: NDArray[np.int32]
    """L: its neighbour."""
    origin: NDArray[np.int32]
    """E: the origin of the flood."""
    present: NDArray[np.bool_]
    """E x nodes: whether a node was present."""
    seen: NDArray[np.int8]
    """E x L: one of the codes below."""
    delay: NDArray[np.int16]
    """E x L: if the neighbour asked for itself, the hops between the advert and the request; -1 if they cannot be
    seen."""
    handovers: NDArray[np.int32]
    """Rows of (epoch, game, observer, peer, message, node): names in the messages of shell games."""

    @property
    def coalition(self) -> NDArray[np.bool_]:
        """A mask of the coalition's nodes. Insiders without honest neighbours are missing."""
        mask = np.zeros(self.present.shape[1], np.bool_)
        mask[self.observer] = True
        return mask

    def first_epochs(self, epochs: int) -> LinkObservations:
        """The observations of the first epochs: all that an attacker has at that time."""
        return self.epoch_range(0, epochs)

    def epoch_range(self, first: int, end: int) -> LinkObservations:
        """The observations of the epochs from `first` up to `end`, counted from 0."""
        games = self.handovers[(self.handovers[:, 0] >= first) & (self.handovers[:, 0] < end)]
        games = games - np.array([first, 0, 0, 0, 0, 0], np.int32)
        return LinkObservations(
            self.observer, self.peer, self.origin[first:end], self.present[first:end], self.seen[first:end],
            self.delay[first:end], games,
        )  # fmt: skip


AWAY: Final = -1
"""The neighbour was absent."""
SILENT: Final = 0
"""The neighbour was present, and sent nothing about the topic but the advert."""
ASKED: Final = 1
"""The neighbour subscribed with the observer, without an invitation."""
RECRUITED: Final = 2
"""The neighbour accepted the observer's invitation, and subscribed with it: it was not in the mesh."""
REFUSED: Final = 3
"""The neighbour refused the observer's invitation: it is in the mesh."""
INVITED: Final = 4
"""The neighbour invited the observer, which accepted or refused: the neighbour is in the mesh."""
FOLLOWED: Final = 5
"""The observer subscribed with the neighbour."""

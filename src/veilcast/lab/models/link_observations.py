"""What a coalition of members was shown: arrays over epochs and links, with codes for what may be seen on one.

Whoever makes a view fills them in and attackers read them; they stand alone here, so that an attacker gets them without
anything that knows the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LinkObservations:
    """Of E epochs, and L links between an insider and an honest neighbour."""

    observer: NDArray[np.int32]
    """L: the insider."""
    peer: NDArray[np.int32]
    """L: its neighbour."""
    origin: NDArray[np.int32]
    """E: where the flood began."""
    present: NDArray[np.bool_]
    """E x nodes: who was there."""
    seen: NDArray[np.int8]
    """E x L: one of the codes below."""
    delay: NDArray[np.int16]
    """E x L: where the neighbour asked of its own accord, how many hops after the advert; -1 where nobody can tell."""
    handovers: NDArray[np.int32]
    """Rows of (epoch, game, observer, peer, message, node): names in the messages of shell games."""

    @property
    def coalition(self) -> NDArray[np.bool_]:
        """By node, whether it is of the coalition, as far as it has honest neighbours."""
        mask = np.zeros(self.present.shape[1], np.bool_)
        mask[self.observer] = True
        return mask

    def first_epochs(self, epochs: int) -> LinkObservations:
        """What was shown in the first epochs: all that somebody may use who stands there."""
        return self.epoch_range(0, epochs)

    def epoch_range(self, first: int, end: int) -> LinkObservations:
        """What was shown in the epochs from `first` up to `end`, counted from 0."""
        games = self.handovers[(self.handovers[:, 0] >= first) & (self.handovers[:, 0] < end)]
        games = games - np.array([first, 0, 0, 0, 0, 0], np.int32)
        return LinkObservations(
            self.observer, self.peer, self.origin[first:end], self.present[first:end], self.seen[first:end],
            self.delay[first:end], games,
        )  # fmt: skip


AWAY: Final = -1
"""The neighbour was not there."""
SILENT: Final = 0
"""It was there, and nothing was said of the topic but the advert."""
ASKED: Final = 1
"""It subscribed with the observer, and not because that had invited it."""
RECRUITED: Final = 2
"""It accepted the observer's invitation, and subscribed with it: it was not in the mesh."""
REFUSED: Final = 3
"""It refused the observer's invitation: it is in the mesh."""
INVITED: Final = 4
"""It invited the observer, who accepted, or refused: it is in the mesh."""
FOLLOWED: Final = 5
"""The observer subscribed with it."""

"""What a coalition of members was shown, as its attackers read it: arrays over epochs and links, and nothing else.

An attacker may know no more than these. Any object that has the fields will do; who makes one knows the truth, and so
no attacker may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Sights(Protocol):
    """Of E epochs, and L links between an insider and an honest neighbour."""

    @property
    def observer(self) -> NDArray[np.int32]:
        """L: the insider."""

    @property
    def peer(self) -> NDArray[np.int32]:
        """L: its neighbour."""

    @property
    def origin(self) -> NDArray[np.int32]:
        """E: where the flood began."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """E x nodes: who was there."""

    @property
    def seen(self) -> NDArray[np.int8]:
        """E x L: a code of `kernels.sights`."""

    @property
    def delay(self) -> NDArray[np.int16]:
        """E x L: hops from the advert to the neighbour's answer; -1 where nobody can tell."""

    @property
    def handed(self) -> NDArray[np.int32]:
        """Rows of (epoch, game, observer, peer, message, node): names in the messages of shell games."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The same, as plain values."""

    observer: NDArray[np.int32]
    peer: NDArray[np.int32]
    origin: NDArray[np.int32]
    present: NDArray[np.bool_]
    seen: NDArray[np.int8]
    delay: NDArray[np.int16]
    handed: NDArray[np.int32]


def until(sights: Sights, epochs: int) -> Seen:
    """What was shown in the first epochs: all that somebody may use who stands there."""
    return Seen(
        sights.observer, sights.peer, sights.origin[:epochs], sights.present[:epochs], sights.seen[:epochs],
        sights.delay[:epochs], sights.handed[sights.handed[:, 0] < epochs],
    )  # fmt: skip


def hostile(sights: Sights) -> NDArray[np.bool_]:
    """By node, whether it is of the coalition."""
    mask = np.zeros(sights.present.shape[1], np.bool_)
    mask[sights.observer] = True
    return mask

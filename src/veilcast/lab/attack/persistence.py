"""Persistence (P0 2.3, 5): what is there in every publication is there for a reader's sake.

Where covers are drawn anew for each publication, they come and go, and the mesh below them stays. Two observers draw on
that. One keeps the links that carried every publication so far, and applies the leaf rule to what is left: the covers
fall away, and soon the baseline stands bare. The other keeps only nodes: it names those that were there every time and
passed nothing on at least once, for a cover of a leaf is not drawn every time. It learns more slowly, and its curve
looks like P0's ("an increase with every publication").

The shell game, which moves the same nodes about, defeats the first; nobody is a leaf at the same place twice. It helps
the second: every member is a leaf now and then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.leaf import leaves, present


class Persistence:
    """What both observers know after the publications they have been shown, in turn."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._links: NDArray[np.int64] | None = None
        self._always = np.ones(nodes, dtype=np.bool_)
        self._once_leaf = np.zeros(nodes, dtype=np.bool_)

    def see(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> None:
        """One more publication."""
        links = np.unique(src.astype(np.int64) * self._nodes + dst)
        self._links = links if self._links is None else np.intersect1d(self._links, links, assume_unique=True)
        self._always &= present(dst, self._nodes)
        self._once_leaf |= leaves(src, dst, self._nodes)

    def by_links(self) -> NDArray[np.bool_]:
        """Leaves of the links that carried every publication."""
        links = np.empty(0, dtype=np.int64) if self._links is None else self._links
        src, dst = np.divmod(links, self._nodes)
        return leaves(src.astype(np.int32), dst.astype(np.int32), self._nodes)

    def by_nodes(self) -> NDArray[np.bool_]:
        """Those who received every publication, and were a leaf in one of them."""
        return self._always & self._once_leaf

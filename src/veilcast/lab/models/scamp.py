"""The overlay that SCAMP builds (Ganesh, Kermarrec, Massoulie 2003), with the joins of `mesh/scamp.py`, one after the
other.

A newcomer's request walks to a random contact. The contact sends a copy of it to each node of its view, and some more.
A node that gets a copy keeps the newcomer with probability 1 / (1 + size of its view), or else forwards the copy. Views
grow to about (copies + 1) ln n. A node and a node that it keeps are neighbours: so degrees are about twice that, and
the limit on neighbours cuts off the largest.

It is the overlay of a network in which all nodes have just joined and none has failed: no lease has ended yet.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_unit, stream


def scamp_graph(n: int, seed: int, *, copies: int = 1, neighbours_max: int = 32) -> Graph:
    """The defaults are those of the machines."""
    if n < 2 or copies < 0 or neighbours_max < 2:
        raise ConfigError("SCAMP needs two nodes, no negative copies, and room for two neighbours")
    near, degrees = _join_all(n, copies, neighbours_max, stream(seed, "scamp"))
    known = np.arange(neighbours_max) < degrees[:, None]
    return from_edges(n, np.repeat(np.arange(n), degrees), near[known])


@jit
def _join_all(n: int, copies: int, most: int, state: Stream) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The neighbours of each node, and their number."""
    near, degrees = np.empty((n, most), np.int32), np.zeros(n, np.int32)
    views, sizes = np.empty((n, most), np.int32), np.zeros(n, np.int32)
    for newcomer in range(1, n):
        contact = draw_below(state, min(newcomer, CONTACTS))
        for _ in range(WALK_HOPS):
            if draw_unit(state) * most < degrees[contact]:
                contact = near[contact, draw_below(state, degrees[contact])]
        size = sizes[contact]
        if size == 0:
            _keep(near, degrees, views, sizes, contact, newcomer)
        for copy in range(size + (copies if size else 0)):
            holder = views[contact, copy if copy < size else draw_below(state, size)]
            _place(near, degrees, views, sizes, holder, newcomer, state)
        _keep(near, degrees, views, sizes, newcomer, contact)
    return near, degrees


@jit
def _place(
    near: NDArray[np.int32],
    degrees: NDArray[np.int32],
    views: NDArray[np.int32],
    sizes: NDArray[np.int32],
    holder: int,
    newcomer: int,
    state: Stream,
) -> None:
    """Forward a copy until a node keeps the newcomer."""
    for left in range(FORWARD_HOPS, -1, -1):
        willing = left == 0 or draw_unit(state) * (1 + sizes[holder]) < 1
        if willing and _keep(near, degrees, views, sizes, holder, newcomer):
            return
        others = sizes[holder] - _among(views, sizes, holder, newcomer)
        if others == 0:
            return
        after = newcomer
        while after == newcomer:
            after = views[holder, draw_below(state, sizes[holder])]
        holder = after


@jit
def _keep(
    near: NDArray[np.int32],
    degrees: NDArray[np.int32],
    views: NDArray[np.int32],
    sizes: NDArray[np.int32],
    holder: int,
    kept: int,
) -> bool:
    """False if the holder keeps it already, is it, or if either of the two has no room for a neighbour."""
    linked = _among(near, degrees, holder, kept)
    full = max(degrees[holder], degrees[kept]) == near.shape[1]
    if holder == kept or _among(views, sizes, holder, kept) or (full and not linked):
        return False
    views[holder, sizes[holder]] = kept
    sizes[holder] += 1
    if not linked:
        near[holder, degrees[holder]], near[kept, degrees[kept]] = kept, holder
        degrees[holder] += 1
        degrees[kept] += 1
    return True


@jit
def _among(rows: NDArray[np.int32], sizes: NDArray[np.int32], node: int, other: int) -> bool:
    for place in range(sizes[node]):  # noqa: SIM110 - a generator is more than numba knows
        if rows[node, place] == other:
            return True
    return False


CONTACTS: Final = 3
"""Number of the first nodes that all other nodes know, as in the simulator."""
WALK_HOPS: Final = 32
FORWARD_HOPS: Final = 128
"""The values of the mesh's SCAMP configuration."""

"""Cadence and size: which node sends or receives in another rhythm, or in other sizes, than all others?

Where links carry cells of one size at one rate, this is the promise itself: the gap between two cells of a link does
not depend on what its ends do. The risk is not a message but work. A node that seals notifications, renews keys or
collects garbage may be late, and a full queue may be early. So this attack assumes nothing about notifications.

- Without training it compares two samples: the gaps (or sizes) of one node with those of all others, by the largest
  distance between their distributions (Kolmogorov and Smirnov), times sqrt(n m / (n + m)). Under one law a node with
  few cells then looks no stranger than one with many. Received cells tell of subscribers, sent cells of publishers. The
  same comparison of links finds odd links.
- With training on other runs, whose truth is known (`classifiers`), each node is described by the number of cells, the
  gaps and the sizes on its links in windows of time: means, spreads and extremes, and how these differ between windows.
- `extract_burst_features` describes one node over a short time by the quantiles of the gaps on all its links at once.
  If cells are due on a grid of their own for each link, one gap says little. The quantiles show a few late gaps among
  many punctual ones, which means and spreads blur.

A gap counts where it ends. The first cell of a link has no gap and is left out. Cells may come in any order; in arrays
nodes are numbers. The frame version takes columns `run`, `src` and `dst` of strings or numbers. It reduces cells to
counts by one sort of each link by time, which spills where it does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass

SentCells: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Send times to one peer, in order, and the size of each cell."""
Times = NDArray[np.int64]
Nodes = NDArray[np.int32]


def split_by_link(
    src: NDArray[np.int32], dst: NDArray[np.int32], t_us: NDArray[np.int64], size: NDArray[np.int64]
) -> list[list[SentCells]]:
    """The cells it sent over each of its links, by node."""
    order = np.lexsort((t_us, dst, src))
    src, dst, t_us, size = src[order], dst[order], t_us[order], size[order]
    another = (np.diff(src) != 0) | (np.diff(dst) != 0)
    starts = [0, *(np.flatnonzero(another) + 1), len(src)]
    found: list[list[SentCells]] = [[] for _ in range(int(src.max(initial=-1)) + 1)]
    for first, last in pairwise(dict.fromkeys(starts)):
        found[src[first]].append((t_us[first:last], size[first:last]))
    return found


def extract_burst_features(sent: Sequence[SentCells], start_us: int, end_us: int) -> NDArray[np.float64] | None:
    """Features of one node in this time; None if there are fewer than two gaps."""
    gaps, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for t_us, size in sent:
        first, last = np.searchsorted(t_us, [start_us, end_us])
        gaps.append(np.diff(t_us[first:last]))
        sizes.append(size[first:last])
    gap, lengths = np.concatenate(gaps), np.concatenate(sizes)
    if len(gap) < 2:
        return None
    shares = np.quantile(gap, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    of_sizes = (lengths.mean(), lengths.std(), lengths.min(), lengths.max())
    return np.array([len(lengths), gap.mean(), gap.std(), *shares, *of_sizes])


class GapCounts(NamedTuple):
    """Number of cells by link, gap before the cell (in grains) and size of the cell."""

    src: Nodes
    dst: Nodes
    gap: NDArray[np.int64]
    size: NDArray[np.int64]
    cells: NDArray[np.int64]


class LinkWindows(NamedTuple):
    """One row for each link and window in which the link carried anything."""

    src: Nodes
    dst: Nodes
    window: NDArray[np.int64]
    values: NDArray[np.float64]
    """Rows x `WINDOW_FEATURES`."""


class CadenceScores(NamedTuple):
    """How far its received and its sent cells differ from those of other nodes, by node."""

    received: NDArray[np.float64]
    sent: NDArray[np.float64]


def score_cadence(seen: GapCounts, nodes: int) -> CadenceScores:
    """Score each node as a subscriber and as a publisher: by gaps or by sizes, whichever differ more."""
    received, sent = (
        np.maximum(
            compare_distributions(ends, seen.gap, seen.cells, nodes),
            compare_distributions(ends, seen.size, seen.cells, nodes),
        )
        for ends in (seen.dst, seen.src)
    )
    return CadenceScores(received, sent)


def compare_distributions(
    group: NDArray[np.integer], value: NDArray[np.int64], count: NDArray[np.int64], groups: int
) -> NDArray[np.float64]:
    """The distance of its distribution of values from that of all other groups, by group; 0 for an empty group."""
    _, which = np.unique(value, return_inverse=True)
    values = int(which.max(initial=-1)) + 1
    own = np.bincount(group.astype(np.int64) * values + which, count, groups * values).reshape(groups, values)
    others = own.sum(axis=0) - own
    much, rest = own.sum(axis=1), others.sum(axis=1)
    apart = np.cumsum(own, axis=1) / np.maximum(1, much)[:, None]
    apart -= np.cumsum(others, axis=1) / np.maximum(1, rest)[:, None]
    weight = np.sqrt(much * rest / np.maximum(1, much + rest))
    distance: NDArray[np.float64] = np.abs(apart).max(axis=1, initial=0) * weight
    return distance


def extract_features(seen: LinkWindows, nodes: int) -> NDArray[np.float64]:
    """Classifier input, nodes x features: first of received cells, then of sent ones; see `summarise_groups`."""
    return np.hstack([summarise_groups(ends, seen.values, nodes) for ends in (seen.dst, seen.src)])


def summarise_groups(group: NDArray[np.integer], values: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """The means, spreads and maxima of its columns, by group; 0 for an empty group."""
    many = np.maximum(1, np.bincount(group, minlength=groups))[:, None]
    mean, spread, most = (np.zeros((groups, values.shape[1])) for _ in range(3))
    np.add.at(mean, group, values)
    mean /= many
    np.add.at(spread, group, (values - mean[group]) ** 2)
    np.maximum.at(most, group, values)
    return np.hstack([mean, np.sqrt(spread / many), most])


GRAIN_US: Final = 1_000
"""Gaps are counted in these, in microseconds."""
WINDOW_US: Final = 1_000_000
WINDOW_FEATURES: Final = (
    "cells",
    "gap",
    "gap_spread",
    "gap_least",
    "gap_most",
    "size",
    "size_spread",
    "size_least",
    "size_most",
)
"""Features of one window of a link; gaps are in microseconds."""

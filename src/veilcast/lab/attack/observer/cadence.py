"""Cadence and size: who sends, or is sent to, in another rhythm than everybody else, or in other sizes?

Where links carry cells of one size at one rate, this is the promise itself: a gap between two cells of a link is as
long whatever its ends are doing. What might break it is no message, but work: a node that has notes to seal, keys to
renew or rubbish to collect may be late, and a queue that runs full may be early. So nothing is assumed of what a note
looks like.

- *Without training*, two samples are compared: the gaps (or sizes) of one node with those of all the others, by the
  largest distance between their distributions (Kolmogorov and Smirnov), times sqrt(n m / (n + m)), so that under one
  law who was seen little looks no stranger than who was seen much. What a node gets tells of readers, what it sends of
  publishers. The same of links instead of nodes finds links that are odd.
- *With training* on other runs, whose truth is known (`classifiers`), each node is shown by how many cells, gaps and
  sizes its links had in windows of time: their means, spreads and extremes, and how these differ from window to window.

A gap counts where it ends. The first cell of a link has nothing before it, and is left out. Cells may come in any
order; of arrays nodes are numbers. The frames' form takes any columns `run`, `src` and `dst`, strings or numbers, and
brings cells down to counts by one sort of each link by time, which spills where it does not fit.


The pulse of a node: how what it sent to all its peers in a short time was spaced, and how long it was.

Where cells are due on a grid of their own for each link, one gap says little. The gaps of all links of a node at once
say whether it was held up: their quantiles show a few that are late among many that are not, which means and spreads
blur. A classifier is shown these numbers and learns what matters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


SentCells: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""When cells left for one peer, in order, and how long each was."""


def split_by_link(
    src: NDArray[np.int32], dst: NDArray[np.int32], t_us: NDArray[np.int64], size: NDArray[np.int64]
) -> list[list[SentCells]]:
    """By node, what it sent over each of its links."""
    order = np.lexsort((t_us, dst, src))
    src, dst, t_us, size = src[order], dst[order], t_us[order], size[order]
    another = (np.diff(src) != 0) | (np.diff(dst) != 0)
    starts = [0, *(np.flatnonzero(another) + 1), len(src)]
    found: list[list[SentCells]] = [[] for _ in range(int(src.max(initial=-1)) + 1)]
    for first, last in pairwise(dict.fromkeys(starts)):
        found[src[first]].append((t_us[first:last], size[first:last]))
    return found


def extract_burst_features(sent: Sequence[SentCells], start_us: int, end_us: int) -> NDArray[np.float64] | None:
    """Of one node in this time; None where there is too little for any gap to be told."""
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


Times = NDArray[np.int64]
Nodes = NDArray[np.int32]


class GapCounts(NamedTuple):
    """How often each link had a gap of so many grains, and at its end a cell of that size."""

    src: Nodes
    dst: Nodes
    gap: NDArray[np.int64]
    size: NDArray[np.int64]
    cells: NDArray[np.int64]


class LinkWindows(NamedTuple):
    """A row for each link and window in which it carried anything."""

    src: Nodes
    dst: Nodes
    window: NDArray[np.int64]
    values: NDArray[np.float64]
    """Rows x `WINDOW_FEATURES`."""


class CadenceScores(NamedTuple):
    """By node, how much what it got, and what it sent, differs from what others did."""

    received: NDArray[np.float64]
    sent: NDArray[np.float64]


def score_cadence(seen: GapCounts, nodes: int) -> CadenceScores:
    """By node, how much it looks like a reader, and like a publisher: by gaps or by sizes, whichever are stranger."""
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
    """By group, how far the distribution of its values is from that of all others' values; 0 of who has none."""
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
    """What a classifier is shown: nodes x what each got, then what it sent; see `summarise_groups`."""
    return np.hstack([summarise_groups(ends, seen.values, nodes) for ends in (seen.dst, seen.src)])


def summarise_groups(group: NDArray[np.integer], values: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """By group, the means, the spreads and the largest of the columns of its rows; 0 of who has none."""
    many = np.maximum(1, np.bincount(group, minlength=groups))[:, None]
    mean, spread, most = (np.zeros((groups, values.shape[1])) for _ in range(3))
    np.add.at(mean, group, values)
    mean /= many
    np.add.at(spread, group, (values - mean[group]) ** 2)
    np.maximum.at(most, group, values)
    return np.hstack([mean, np.sqrt(spread / many), most])


def count_gaps(t_us: Times, src: Nodes, dst: Nodes, size: NDArray[np.int64], grain_us: int = 1000) -> GapCounts:
    order, gap_us = _gaps(t_us, src, dst, size)
    src, dst, gap, size = src[order], dst[order], gap_us // grain_us, size[order]
    kinds = np.lexsort((size, gap, dst, src))
    src, dst, gap, size = src[kinds], dst[kinds], gap[kinds], size[kinds]
    starts, cells = _stretches(src, dst, gap, size)
    return GapCounts(src[starts], dst[starts], gap[starts], size[starts], cells)


def summarise_windows(t_us: Times, src: Nodes, dst: Nodes, size: NDArray[np.int64], window_us: int) -> LinkWindows:
    order, gap_us = _gaps(t_us, src, dst, size)
    src, dst, window = src[order], dst[order], t_us[order] // window_us
    # A link's cells are in the order of time, so a window of it is a stretch of rows.
    starts, cells = _stretches(src, dst, window)
    columns = [cells, *_moments(gap_us, starts, cells), *_moments(size[order], starts, cells)]
    return LinkWindows(src[starts], dst[starts], window[starts], np.column_stack(columns).astype(np.float64))


def count_gaps_frame(cells: DataFrame, grain_us: int = 1000) -> DataFrame:
    """`count_gaps` of a frame: columns run, src, dst, gap, size, cells."""
    from pyspark.sql import functions as sql

    grains = sql.expr(f"gap_us div {grain_us}").alias("gap")
    counts = _with_gaps(cells).groupBy(_LINK, grains, "size").agg(sql.count("*").alias("cells"))
    return _named(counts, cells).select("run", "src", "dst", "gap", "size", "cells")


def _gaps(t_us: Times, src: Nodes, dst: Nodes, size: NDArray[np.int64]) -> tuple[NDArray[np.intp], Times]:
    """The rows that have one before them on their link, link by link in the order of time; and their gaps. Of cells at
    the same time the smaller comes first, here and in frames."""
    order = np.lexsort((size, t_us, dst, src))
    follows = (np.diff(src[order]) == 0) & (np.diff(dst[order]) == 0)
    return order[1:][follows], np.diff(t_us[order])[follows]


def _stretches(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where rows begin that are the same in all columns, one after the other, and how many they are."""
    fresh = np.ones(len(columns[0]), np.bool_)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = np.flatnonzero(fresh)
    return starts, np.diff(np.append(starts, len(fresh)))


def _moments(values: NDArray[np.int64], starts: NDArray[np.intp], many: NDArray[np.intp]) -> list[NDArray[np.float64]]:
    """Of each stretch the mean, the spread, the least and the largest."""
    if not len(starts):
        return [np.zeros(0)] * 4
    mean = np.add.reduceat(values, starts) / many
    spread = np.sqrt(np.add.reduceat((values - np.repeat(mean, many)) ** 2, starts) / many)
    least, most = (form.reduceat(values, starts).astype(np.float64) for form in (np.minimum, np.maximum))
    return [mean, spread, least, most]


def _with_gaps(cells: DataFrame) -> DataFrame:
    """Columns link, t_us, size, gap_us. What is sorted is as narrow as can be, and links are numbers in it: 64 bits of
    a hash, so that two of a million links are one with a probability below one in ten million."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    narrow = cells.select(_hashed(), "t_us", sql.col("size").cast("int").alias("size"))
    before = sql.lag("t_us").over(Window.partitionBy(_LINK).orderBy("t_us", "size"))
    return narrow.withColumn("gap_us", sql.col("t_us") - before).where("gap_us is not null")


def _named(found: DataFrame, cells: DataFrame) -> DataFrame:
    """With run, src and dst of each link, of which there are few."""
    from pyspark.sql import functions as sql

    return found.join(sql.broadcast(cells.select(_hashed(), "run", "src", "dst").distinct()), _LINK)


def _hashed() -> Column:
    from pyspark.sql import functions as sql

    return sql.xxhash64("run", "src", "dst").alias(_LINK)


_LINK: Final = "link"
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
"""What is said of a window of a link; gaps are microseconds."""

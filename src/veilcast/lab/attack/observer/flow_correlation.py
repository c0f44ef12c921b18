"""Flow correlation: whose arrivals follow another node's departures a little later?

No cell is opened or told from another. The bytes that leave and reach each node are counted in short bins of time. Two
such series are compared by their normalised cross-correlation

    c(u, v, k) = mean over t of z_out(u, t) z_in(v, t + k)

where z has mean 0 and variance 1, at the lags k that the path between the nodes may take; the largest value counts.
This works through any number of hops and any encryption, as long as the volume of the input shows in the output. The
arrivals of other nodes follow the departures of a source, and its own arrivals follow no other node's. So a node that
leads more than it follows is named as the publisher, and the nodes that follow the strongest leader as its subscribers.
Constant cells have constant volumes; only their jitter is left to correlate.

All heartbeats correlate with one another and tell nothing. The activity of a node in the same part of every period is
its rhythm and is removed first (`find_rhythm`). There are few lags beside the bins, so a matrix product for each lag
costs less than transforms of all series.

A record is cut in time, and each stretch gives sums of products (`FlowSums`), which add up to those of the record.
Bytes are integers and medians are multiples of one half, so doubled values are integers, and sums of their products are
exact up to 2^53. So the cut shows in no bit of the result. `flow_job` divides the work by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""Nodes x bins."""


class FlowScores(NamedTuple):
    """How much it looks like a subscriber (`follows`) and like the publisher (`leads`), by node."""

    follows: NDArray[np.float64]
    leads: NDArray[np.float64]


class FlowSums(NamedTuple):
    """Sums over a stretch of a record; k is the lag."""

    products: NDArray[np.float64]
    """Of x(u, t) y(v, t + k): lags x leaving x arriving."""
    leaving: NDArray[np.float64]
    """Of x(u, t), without the last k bins of the record: lags x leaving."""
    arriving: NDArray[np.float64]
    """Of y(v, t), without the first k bins of the record: lags x arriving."""
    leaving_squares: NDArray[np.float64]
    arriving_squares: NDArray[np.float64]

    @classmethod
    def of_stretch(cls, leaving: Series, arriving: Series, first: int, bins: int, lags: int) -> Self:
        """Of the bins from `first` on, of the `bins` of a record. `arriving` goes on for `lags` bins behind `leaving`,
        with zeros behind the end of the record."""
        width, known = leaving.shape[1], range(min(lags, bins - 1) + 1)
        return cls(
            np.array([leaving @ arriving[:, lag : lag + width].T for lag in known]),
            np.array([leaving[:, : max(0, bins - lag - first)].sum(axis=1) for lag in known]),
            np.array([arriving[:, max(0, lag - first) : width].sum(axis=1) for lag in known]),
            (leaving**2).sum(axis=1),
            (arriving[:, :width] ** 2).sum(axis=1),
        )

    @classmethod
    def add(cls, parts: Iterable[Self]) -> Self:
        every = list(parts)
        return cls(*(sum(columns[1:], start=columns[0]) for columns in zip(*every, strict=True)))

    def to_bytes(self) -> bytes:
        return b"".join(np.ascontiguousarray(values, np.float64).tobytes() for values in self)

    @classmethod
    def from_bytes(cls, data: bytes, arriving: int, bins: int, lags: int) -> Self:
        """`arriving` is the number of nodes whose arrivals were compared."""
        values, many = np.frombuffer(data, np.float64), min(lags, bins - 1) + 1
        leaving = (values.size - (many + 1) * arriving) // (many * arriving + many + 1)
        shapes = [(many, leaving, arriving), (many, leaving), (many, arriving), (leaving,), (arriving,)]
        cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
        return cls(*(part.reshape(shape) for part, shape in zip(np.split(values, cuts), shapes, strict=True)))


def score_flows(leaving: Series, arriving: Series, lags: int) -> FlowScores:
    """The scores of a whole record. Its series have no rhythm any more."""
    return score_correlations(correlations(leaving, arriving, lags)[0])


def correlations(leaving: Series, arriving: Series, lags: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """For u and v, how strongly the arrivals at v follow the departures of u at the best lag from 0 to `lags`; and that
    lag."""
    bins = leaving.shape[1]
    if not bins:
        nothing = np.zeros((len(leaving), len(arriving)))
        return nothing, nothing.astype(np.int64)
    behind = np.pad(arriving, ((0, 0), (0, lags)))
    return correlate_sums(FlowSums.of_stretch(leaving, behind, 0, bins, lags), bins)


def correlate_sums(sums: FlowSums, bins: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The same from the sums over a record of so many bins."""
    out, into = sums.leaving[0] / bins, sums.arriving[0] / bins
    scale = np.outer(
        _inverse_spread(sums.leaving_squares / bins, out), _inverse_spread(sums.arriving_squares / bins, into)
    )
    best, at = np.full(scale.shape, -1.0), np.zeros(scale.shape, np.int64)
    for lag, product in enumerate(sums.products):
        found = product / bins - np.outer(sums.leaving[lag] / bins, into) - np.outer(out, sums.arriving[lag] / bins)
        found = (found + np.outer(out, into) * ((bins - lag) / bins)) * scale
        better = found > best
        best[better], at[better] = found[better], lag
    return best, at


def score_correlations(found: NDArray[np.float64]) -> FlowScores:
    """From c(u, v) of all nodes with all."""
    found = found.copy()
    # That a node forwards what it receives says nothing about its role.
    np.fill_diagonal(found, 0.0)
    leads = (found.sum(axis=1) - found.sum(axis=0)) / max(1, len(found) - 1)
    follows = found[np.argmax(leads)] if len(found) else leads
    return FlowScores(follows, leads)


def find_rhythm(values: NDArray[np.int64], counts: NDArray[np.int64], periods: int) -> int:
    """Twice the median of a place in all periods. Values other than 0 are given, with their counts."""
    order = np.argsort(values, kind="stable")
    behind = np.cumsum(counts[order])
    zeros = periods - int(counts.sum())

    def at(rank: int) -> int:
        return 0 if rank < zeros else int(values[order][np.searchsorted(behind, rank - zeros, side="right")])

    return at((periods - 1) // 2) + at(periods // 2)


def _inverse_spread(squares: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 over the standard deviation; 0 for a constant series, which correlates with nothing."""
    variance = squares - mean**2
    return np.where(variance > _LAST_BITS * squares, 1 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)


BINS_PER_HEARTBEAT: Final = 25
LAGS_MAX: Final = 10
"""Bins that a notification may take between any two nodes."""
_LAST_BITS: Final = 1e-12

"""Flow correlation: whose arrivals rise and fall as somebody's departures did, a little before?

Nothing is opened, and no cell is told from another. What leaves each node and what reaches it is counted, in bytes, in
short bins of time; two such series are compared by their normalised cross-correlation

    c(u, v, k) = mean over t of z_out(u, t) z_in(v, t + k)

where z has mean 0 and variance 1, at the lags k that the way between them may take; the largest counts. It works
through any number of hops and any encryption, wherever the volume of what goes in shows in what comes out. Of a source
the others' arrivals follow its departures, and its own arrivals follow nobody's: who leads more than it follows is
named as the publisher, and who follows the one that leads most, as its reader. Constant cells have constant volumes;
what is left to correlate is their jitter.

Everybody's heartbeats correlate with everybody's, and tell nothing: what a node does in the same part of every period
is its rhythm, and is taken away first (`remove_rhythm`). Lags are few beside the bins, so a product of matrices for
each
costs less than transforms of all series do. A frame is brought to such series by one aggregation of bytes over run,
node and bin, once by `src` and once by `dst`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""Nodes x bins."""


class FlowScores(NamedTuple):
    """By node, how much it looks like a reader, and like the publisher."""

    follows: NDArray[np.float64]
    leads: NDArray[np.float64]


def score_flows(leaving: Series, arriving: Series, lags: int) -> FlowScores:
    found, _ = correlations(leaving, arriving, lags)
    # That who gets much passes it on says nothing of anybody's part.
    np.fill_diagonal(found, 0.0)
    leads = (found.sum(axis=1) - found.sum(axis=0)) / max(1, len(found) - 1)
    follows = found[np.argmax(leads)] if len(found) else leads
    return FlowScores(follows, leads)


def correlations(leaving: Series, arriving: Series, lags: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """For u and v, how strongly what reaches v follows what leaves u, at the best of the lags 0 to `lags`; and which
    that is."""
    out, into = _standard(leaving), _standard(arriving)
    bins = out.shape[1]
    best, at = np.full((len(out), len(into)), -1.0), np.zeros((len(out), len(into)), np.int64)
    for lag in range(min(lags, bins - 1) + 1):
        found = out[:, : bins - lag] @ into[:, lag:].T / bins
        better = found > best
        best[better], at[better] = found[better], lag
    return best, at


def bin_bytes(
    t_us: NDArray[np.int64], ends: NDArray[np.int32], size: NDArray[np.int64], nodes: int, bin_us: int
) -> Series:
    """The bytes of each node and bin, from the first cell to the last; `ends` are the cells' sources, or where they
    went."""
    if not len(t_us):
        return np.zeros((nodes, 1))
    at = (t_us - t_us.min()) // bin_us
    bins = int(at.max()) + 1
    counted = np.bincount(ends.astype(np.int64) * bins + at, size.astype(np.float64), nodes * bins)
    return counted.reshape(nodes, bins).astype(np.float64)


def remove_rhythm(values: Series, period: int) -> Series:
    """What is left of whole periods of so many bins, if from each bin the usual of its place in the period is taken;
    of less than one period, nothing."""
    bins = values.shape[1] // period * period
    if not bins:
        return np.zeros_like(values)
    folded = values[:, :bins].reshape(len(values), -1, period)
    left: Series = (folded - np.median(folded, axis=1, keepdims=True)).reshape(len(values), bins)
    return left


def _standard(values: Series) -> Series:
    """A series that never changes correlates with nothing."""
    spread = values.std(axis=1, keepdims=True)
    brought: Series = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, np.inf)
    return brought


BINS_PER_HEARTBEAT: Final = 25
"""Bins of a heartbeat."""
LAGS_MAX: Final = 10
"""Bins that a note may take between any two."""

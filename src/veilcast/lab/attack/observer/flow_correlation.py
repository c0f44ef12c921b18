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
its rhythm and is removed first (`remove_rhythm`). There are few lags beside the bins, so a matrix product for each lag
costs less than transforms of all series. A frame becomes such series by one aggregation of bytes over run, node and
bin, once by `src` and once by `dst`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""Nodes x bins."""


class FlowScores(NamedTuple):
    """How much it looks like a subscriber (`follows`) and like the publisher (`leads`), by node."""

    follows: NDArray[np.float64]
    leads: NDArray[np.float64]


def score_flows(leaving: Series, arriving: Series, lags: int) -> FlowScores:
    found, _ = correlations(leaving, arriving, lags)
    # That a node forwards what it receives says nothing about its role.
    np.fill_diagonal(found, 0.0)
    leads = (found.sum(axis=1) - found.sum(axis=0)) / max(1, len(found) - 1)
    follows = found[np.argmax(leads)] if len(found) else leads
    return FlowScores(follows, leads)


def correlations(leaving: Series, arriving: Series, lags: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """For u and v, how strongly the arrivals at v follow the departures of u at the best lag from 0 to `lags`; and that
    lag."""
    out, into = _standard(leaving), _standard(arriving)
    bins = out.shape[1]
    best, at = np.full((len(out), len(into)), -1.0), np.zeros((len(out), len(into)), np.int64)
    for lag in range(min(lags, bins - 1) + 1):
        found = out[:, : bins - lag] @ into[:, lag:].T / bins
        better = found > best
        best[better], at[better] = found[better], lag
    return best, at


def remove_rhythm(values: Series, period: int) -> Series:
    """Subtract the median of each place in the period, over whole periods of `period` bins; 0 if there is no whole
    period."""
    bins = values.shape[1] // period * period
    if not bins:
        return np.zeros_like(values)
    folded = values[:, :bins].reshape(len(values), -1, period)
    left: Series = (folded - np.median(folded, axis=1, keepdims=True)).reshape(len(values), bins)
    return left


def _standard(values: Series) -> Series:
    """Scale each series to mean 0 and variance 1; a constant series becomes 0 and correlates with nothing."""
    spread = values.std(axis=1, keepdims=True)
    brought: Series = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, np.inf)
    return brought


BINS_PER_HEARTBEAT: Final = 25
LAGS_MAX: Final = 10
"""Bins that a notification may take between any two nodes."""

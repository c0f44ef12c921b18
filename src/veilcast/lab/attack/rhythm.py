"""Rhythm: how long is a heartbeat? It is no secret, but whoever has only a record must find it there.

On every link something of the same size comes again in every period. So of the gaps between cells of one link and one
size the most frequent is about a period. Over several periods the jitter of both ends counts less for each: the
estimate is taken over twice as many again and again, as long as what is known by then tells how many lie between.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.waves import usual_sizes


def heartbeat_us(
    t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32], size: NDArray[np.int64]
) -> int | None:
    """The period, if anything comes again at all. A record of some links is enough."""
    usual = np.isin(size, usual_sizes(src, dst, size))
    rows = np.column_stack([src[usual], dst[usual], size[usual]]).reshape(-1, 3)
    _, series = np.unique(rows, axis=0, return_inverse=True)
    order = np.lexsort((t_us[usual], series))
    at, series = t_us[usual][order], series[order]
    # Of a burst the first counts.
    fresh = np.ones(len(at), np.bool_)
    fresh[1:] = (np.diff(series) != 0) | (np.diff(at) >= _LEAST_US)
    at, series = at[fresh], series[fresh]
    gaps = np.diff(at)[np.diff(series) == 0]
    if len(gaps) < _GAPS_MIN:
        return None
    values, counts = np.unique(gaps // _BIN_US, return_counts=True)
    near = np.abs(gaps - _BIN_US * values[counts.argmax()] - _BIN_US // 2) <= 2 * _BIN_US
    period, apart = float(np.median(gaps[near])), 2
    while apart < len(at):
        same = series[apart:] == series[:-apart]
        spans = (at[apart:] - at[:-apart])[same]
        if len(spans) < _GAPS_MIN:
            break
        # What was on its way for long, or was not sent, has another number of periods.
        period = float(np.median(spans / np.maximum(1, np.rint(spans / period))))
        apart *= 2
    return round(period)


_LEAST_US: Final = 10_000
_BIN_US: Final = 2_000
_GAPS_MIN: Final = 8

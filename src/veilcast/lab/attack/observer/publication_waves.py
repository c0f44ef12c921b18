"""Waves: which cells are notifications, which of them are copies of one publication, and how long a heartbeat is.

Most attackers from outside begin here. Rows are cells: time, source, destination, size. Nodes are numbers from 0.

1. Where links hide nothing, notifications travel outside heartbeats and have a size of their own. A size that is seen
   on nearly every link is that of bare heartbeats or acknowledgements. A size that mostly leaves when its sender beats
   is that of a heartbeat with a payload. A node's beat is easily found, and the length of a period is no secret. Of the
   remaining sizes the most frequent is that of the notifications, because careful publishers pad theirs to one length.
2. A node that sends a notification shortly after receiving one forwards it. A node that sends one without having
   received any has published it. So copies form waves, one for each publication, even if several are under way at once.
   Notifications that go the same way at the same time count as one wave, and one that is held for long before it is
   forwarded begins another. Over many publications both errors are noise. Constant cells have no size that stands out,
   and no wave.
3. A heartbeat sends a cell of the same size on every link in every period. So the most frequent gap between cells of
   one link and one size is about one period. Over several periods the jitter of both ends matters less. The estimate is
   repeated over twice as many periods each time, as long as the current value tells how many lie between two cells.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit


def notification_size(
    t_us: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    size: NDArray[np.int64],
    heartbeat_us: int,
    cells: NDArray[np.int64] | None = None,
) -> int | None:
    """The size of a notification in bytes; None if no cell looks like one. `cells` is the number of cells that each row
    stands for.

    Times are used to the millisecond of a heartbeat only, if a heartbeat is whole milliseconds.
    """
    many = np.ones(len(size), np.int64) if cells is None else cells
    usual = np.isin(size, usual_sizes(src, dst, size))
    phase = _phases(t_us[usual], src[usual], many[usual], heartbeat_us, _count(src))
    sizes, which = np.unique(size[~usual], return_inverse=True)
    if not len(sizes):
        return None
    due = phase[src[~usual]]
    late_us = (t_us[~usual] - due + BEAT_EARLY_US) % heartbeat_us
    beats = (due >= 0) & (late_us < BEAT_EARLY_US + BEAT_LATE_US)
    beside = np.bincount(which, np.where(beats, -many[~usual], many[~usual]))
    best = int(np.argmax(beside))
    return int(sizes[best]) if beside[best] > 0 else None


def usual_sizes(src: NDArray[np.int32], dst: NDArray[np.int32], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sizes seen on nearly every link."""
    _, link = np.unique(_link(src, dst), return_inverse=True)
    sizes, kind = np.unique(size, return_inverse=True)
    pairs = np.unique(kind * np.int64(len(link)) + link)
    carried = np.bincount(pairs // max(1, len(link)), minlength=len(sizes))
    return sizes[carried >= USUAL_SHARE * _count(link)]


def assign_publications(t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
    """The publication of each notification; rows are in time order."""
    return _publications(t_us, src, dst, max(_count(src), _count(dst)))


def estimate_heartbeat_us(
    t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32], size: NDArray[np.int64]
) -> int | None:
    """The heartbeat period in microseconds; None if nothing is periodic. A record of some links is enough."""
    usual = np.isin(size, usual_sizes(src, dst, size))
    rows = np.column_stack([src[usual], dst[usual], size[usual]]).reshape(-1, 3)
    _, series = np.unique(rows, axis=0, return_inverse=True)
    order = np.lexsort((t_us[usual], series))
    at, series = t_us[usual][order], series[order]
    # Only the first cell of a burst counts.
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
        # A late or missing cell has another number of periods.
        period = float(np.median(spans / np.maximum(1, np.rint(spans / period))))
        apart *= 2
    return round(period)


def _phases(
    t_us: NDArray[np.int64], src: NDArray[np.int32], many: NDArray[np.int64], heartbeat_us: int, nodes: int
) -> NDArray[np.int64]:
    """When each sender beats: the millisecond of a heartbeat in which it sends most usual cells; -1 for a node that
    sends none."""
    bins = heartbeat_us // PHASE_BIN_US + 1
    keys, which = np.unique(src * np.int64(bins) + t_us % heartbeat_us // PHASE_BIN_US, return_inverse=True)
    counts = np.bincount(which, many)
    # The last row of each sender has the highest count; of several, the earliest bin.
    order = np.lexsort((-keys, counts, keys // bins))
    phase = np.full(nodes, -1, np.int64)
    phase[keys[order] // bins] = PHASE_BIN_US * (keys[order] % bins)
    return phase


def _link(src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
    return (src.astype(np.int64) << 32) | dst


def _count(numbers: NDArray[np.int32] | NDArray[np.int64]) -> int:
    return int(numbers.max()) + 1 if len(numbers) else 0


@jit
def _publications(
    t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int
) -> NDArray[np.int64]:
    found = np.empty(t_us.size, np.int64)
    last, had = np.full(nodes, -1, np.int64), np.zeros(nodes, np.int64)
    waves = 0
    for row in range(t_us.size):
        u, v, now = src[row], dst[row], t_us[row]
        if last[u] >= 0 and now - had[u] <= FORWARD_WITHIN_US:
            wave = last[u]
        else:
            wave = waves
            waves += 1
        found[row] = last[u] = last[v] = wave
        had[u] = had[v] = now
    return found


USUAL_SHARE: Final = 0.9
"""Share of the links on which a usual size is seen at least."""
PHASE_BIN_US: Final = 1_000
BEAT_EARLY_US: Final = 2_000
BEAT_LATE_US: Final = 10_000
"""A cell that leaves up to `BEAT_EARLY_US` before a beat is due, or up to this long after it, belongs to the beat:
timers of a busy machine are late."""
FORWARD_WITHIN_US: Final = 150_000
"""Longest time between receiving a notification and forwarding it."""
_LEAST_US: Final = 10_000
_BIN_US: Final = 2_000
_GAPS_MIN: Final = 8

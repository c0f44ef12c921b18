"""Rhythm: how long is a heartbeat? It is no secret, but whoever has only a record must find it there.

On every link something of the same size comes again in every period. So of the gaps between cells of one link and one
size the most frequent is about a period. Over several periods the jitter of both ends counts less for each: the
estimate is taken over twice as many again and again, as long as what is known by then tells how many lie between.


Waves: which cells are notes, and which of them are copies of one publication. Most outside attackers begin here.

Where links hide nothing, notes travel outside heartbeats and have a size of their own, so they stand out. A size that
is seen on nearly every link is that of bare heartbeats or of acknowledgements, and one that mostly leaves when its
sender beats is that of a heartbeat with something in it; a node beats in a rhythm that is easily found, and how long a
period is is no secret. Of what is left the most frequent size is that of the notes, for careful publishers make theirs
equally long.

Who sends a note shortly after it had one passes that one on; who sends one out of the blue has made it. So copies come
together to waves, one for each publication, though several be under way at once. Notes that go one way at one time are
taken for one wave, and one that is kept for long before it goes on begins another: over many publications both are
noise. On constant cells there is no size that stands out, and no wave.

Rows are cells: when, from whom, to whom, how long. Nodes are numbers from 0."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit


class PublicationWaves(NamedTuple):
    """The notes among some cells, in the order of time."""

    row: NDArray[np.int64]
    """Which cells they are."""
    publication: NDArray[np.int64]
    """Of which publication each is a copy, numbered from 0 in the order of their beginnings."""


def find_notifications(
    t_us: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    size: NDArray[np.int64],
    heartbeat_us: int,
) -> PublicationWaves:
    """All notes of a record, whose rows may come in any order."""
    found = notification_size(t_us, src, dst, size, heartbeat_us)
    return notifications_of_size(t_us, src, dst, size, NO_NOTIFICATIONS if found is None else found)


def notifications_of_size(
    t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32], size: NDArray[np.int64], notes: int
) -> PublicationWaves:
    """The same where it is known how long notes are."""
    rows = np.flatnonzero(size == notes)
    rows = rows[np.lexsort((dst[rows], src[rows], t_us[rows]))]
    return PublicationWaves(rows, assign_publications(t_us[rows], src[rows], dst[rows]))


def notification_size(
    t_us: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    size: NDArray[np.int64],
    heartbeat_us: int,
    cells: NDArray[np.int64] | None = None,
) -> int | None:
    """How long notes are, if anything looks like one; `cells` says how many like it each row stands for.

    Of times no more is used than the millisecond of a heartbeat, where that is whole milliseconds.
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
    """The sizes that are seen on nearly every link."""
    _, link = np.unique(_link(src, dst), return_inverse=True)
    sizes, kind = np.unique(size, return_inverse=True)
    pairs = np.unique(kind * np.int64(len(link)) + link)
    carried = np.bincount(pairs // max(1, len(link)), minlength=len(sizes))
    return sizes[carried >= USUAL_SHARE * _count(link)]


def assign_publications(t_us: NDArray[np.int64], src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
    """For notes in the order of time, the publication of each."""
    return _publications(t_us, src, dst, max(_count(src), _count(dst)))


def _phases(
    t_us: NDArray[np.int64], src: NDArray[np.int32], many: NDArray[np.int64], heartbeat_us: int, nodes: int
) -> NDArray[np.int64]:
    """When each sender beats: the millisecond of a heartbeat in which it sends most of what is usual; -1 of who does
    not."""
    bins = heartbeat_us // PHASE_BIN_US + 1
    keys, which = np.unique(src * np.int64(bins) + t_us % heartbeat_us // PHASE_BIN_US, return_inverse=True)
    counts = np.bincount(which, many)
    # The last of each sender is that with the highest count, and of several the first.
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


NO_NOTIFICATIONS: Final = -1
"""A size that no cell has."""
USUAL_SHARE: Final = 0.9
"""The share of links on which a size is seen that everybody sends all the time."""
PHASE_BIN_US: Final = 1_000
BEAT_EARLY_US: Final = 2_000
BEAT_LATE_US: Final = 10_000
"""What leaves so long before a beat was due, or after it, left with it: timers of a busy machine come late."""
FORWARD_WITHIN_US: Final = 150_000
"""Within so long after it had a note, a node passes it on."""


def estimate_heartbeat_us(
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

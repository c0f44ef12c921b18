"""A capture observed by plain arrays of one run: the reference that the job of captures is held against.

Every step takes all cells and sorts them; nothing is reduced on the way. It has no engine, no SQL and no parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.observer.cadence import WINDOW_FEATURES, GapCounts, LinkWindows
from veilcast.lab.attack.observer.flow_correlation import LAGS_MAX, Series, score_flows
from veilcast.lab.attack.observer.observations import ActivityRounds, CaptureObservations
from veilcast.lab.attack.observer.publication_waves import assign_publications, notification_size
from veilcast.lab.models.graph import from_edges
from veilcast.observe import CellRow

Times = NDArray[np.int64]
Nodes = NDArray[np.int32]


class PublicationWaves(NamedTuple):
    """The notifications among some cells, in time order."""

    row: NDArray[np.int64]
    """Row of each notification's cell."""
    publication: NDArray[np.int64]


def find_notifications(t_us: Times, src: Nodes, dst: Nodes, size: Times, heartbeat_us: int) -> PublicationWaves:
    """All notifications of a record, whose rows may come in any order."""
    found = notification_size(t_us, src, dst, size, heartbeat_us)
    rows = np.flatnonzero(size == (-1 if found is None else found))
    rows = rows[np.lexsort((dst[rows], src[rows], t_us[rows]))]
    return PublicationWaves(rows, assign_publications(t_us[rows], src[rows], dst[rows]))


def count_gaps(t_us: Times, src: Nodes, dst: Nodes, size: Times, grain_us: int = 1000) -> GapCounts:
    order, gap_us = _gaps(t_us, src, dst, size)
    rows = np.column_stack([src[order], dst[order], gap_us // grain_us, size[order]]).reshape(-1, 4)
    kinds, cells = np.unique(rows, axis=0, return_counts=True)
    return GapCounts(kinds[:, 0].astype(np.int32), kinds[:, 1].astype(np.int32), kinds[:, 2], kinds[:, 3], cells)


def summarise_windows(t_us: Times, src: Nodes, dst: Nodes, size: Times, window_us: int) -> LinkWindows:
    """Moments of each link's gaps and sizes in each window, one window after the other."""
    order, gap_us = _gaps(t_us, src, dst, size)
    if not len(order):
        return LinkWindows(src[:0], dst[:0], t_us[:0], np.zeros((0, len(WINDOW_FEATURES))))
    keys = np.column_stack([src[order], dst[order], t_us[order] // window_us])
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    values = []
    for number in range(len(kinds)):
        row = [float(np.count_nonzero(which == number))]
        for column in (gap_us, size[order]):
            own = column[which == number]
            row += [own.mean(), own.std(), own.min(), own.max()]
        values.append(row)
    return LinkWindows(kinds[:, 0].astype(np.int32), kinds[:, 1].astype(np.int32), kinds[:, 2], np.array(values))


def observe_cells(
    cells: Sequence[CellRow], heartbeat_us: int, published: Sequence[int] = (), topic: Sequence[int] = ()
) -> tuple[list[str], CaptureObservations]:
    """The nodes' names, in order, and what the attackers are shown."""
    names = sorted({end for cell in cells for end in (cell.src, cell.dst)})
    place = {name: number for number, name in enumerate(names)}
    src, dst = (np.array([place[getattr(cell, end)] for cell in cells], np.int32) for end in ("src", "dst"))
    t_us, size = (np.array([getattr(cell, column) for cell in cells], np.int64) for column in ("t_us", "size"))
    epochs, epoch = np.unique([cell.epoch for cell in cells], return_inverse=True)
    present = np.zeros((len(epochs), len(names)), np.bool_)
    present[epoch, src] = present[epoch, dst] = True
    rows, _ = find_notifications(t_us, src, dst, size, heartbeat_us)
    rounds = t_us // heartbeat_us
    activity = np.zeros((int(rounds.max() - rounds.min()) + 1, len(names)))
    np.add.at(activity, (rounds - rounds.min(), dst), size)
    bins = t_us * 25 // heartbeat_us
    series = np.zeros((2, len(names), int(bins.max() - bins.min()) + 1))
    for way, ends in enumerate((src, dst)):
        np.add.at(series[way], (ends, bins - bins.min()), size)
    return names, CaptureObservations(
        graph=from_edges(len(names), src, dst),
        present=present,
        src=src[rows],
        dst=dst[rows],
        at=t_us[rows],
        epoch=epoch[rows],
        rounds=ActivityRounds(heartbeat_us, int(rounds.min()), activity),
        published=np.array(published, np.int64),
        topic=np.array(topic, np.int64),
        gaps=count_gaps(t_us, src, dst, size),
        correlated=score_flows(remove_rhythm(series[0], 25), remove_rhythm(series[1], 25), LAGS_MAX),
        windows=summarise_windows(t_us, src, dst, size, 1_000_000),
    )


def remove_rhythm(values: Series, period: int) -> Series:
    """Subtract the median of each place in the period, over whole periods of `period` bins; no bins are left if there
    is no whole period."""
    bins = values.shape[1] // period * period
    folded = values[:, :bins].reshape(len(values), -1, period)
    left: Series = folded - np.median(folded, axis=1, keepdims=True) if bins else folded
    return left.reshape(len(values), bins)


def _gaps(t_us: Times, src: Nodes, dst: Nodes, size: Times) -> tuple[NDArray[np.intp], Times]:
    """The rows that have a predecessor on their link, and their gaps. The smaller of two cells at the same
    time comes first."""
    order = np.lexsort((size, t_us, dst, src))
    follows = (np.diff(src[order]) == 0) & (np.diff(dst[order]) == 0)
    return order[1:][follows], np.diff(t_us[order])[follows]

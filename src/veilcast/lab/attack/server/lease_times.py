"""What the times of its requests tell a relay's server about a lease: which other leases are the same member's.

The server sees under each pseudonym when leases, questions (`Resume`) and receipts arrive, and when it sent what a
receipt is for. Each attacker gives a score for every pair of leases; larger means more likely one member's.

1. `lease-rhythm`: a question that leaves a fixed time after the last answer shows the round trip to its member. So the
   intervals of two leases of one member are alike, and change alike.
2. `lease-receipts`: a receipt that the member sends shows the same round trip.
3. `lease-silences`: a member that is away is silent under all its leases at once.
4. `lease-returns`: a member that comes back asks about all its leases within seconds. A request counts as a return if
   it is the first one ever, or the first after a silence of `SILENT_INTERVALS` usual intervals.

Silences and intervals are looked at in windows, of which each has a few requests of each lease.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


class LeaseTimes(NamedTuple):
    """The server's log of one run. `lease` numbers pseudonyms."""

    leases: int
    lease: Numbers
    """The lease of each request, in order of time."""
    t_us: Numbers
    receipt_lease: Numbers
    receipt_us: Numbers
    delay_us: Numbers
    """How long each receipt took."""


def score_rhythm(seen: LeaseTimes) -> Floats:
    """Minus the mean difference of two leases' intervals, over the windows in which both have regular ones."""
    order = np.lexsort((seen.t_us, seen.lease))
    lease, t_us = seen.lease[order], seen.t_us[order]
    gap, same = np.diff(t_us), np.diff(lease) == 0
    usual = _usual_interval_us(seen)
    regular = same & (np.abs(gap - usual) < REGULAR * usual)
    return _compare_means(seen.leases, lease[1:][regular], t_us[1:][regular], gap[regular].astype(np.float64))


def score_receipts(seen: LeaseTimes) -> Floats:
    """The same with the delays of receipts; very late ones, of members that were away, are left out."""
    kept = seen.delay_us < LATE_US
    return _compare_means(
        seen.leases, seen.receipt_lease[kept], seen.receipt_us[kept], seen.delay_us[kept].astype(np.float64)
    )


def score_silences(seen: LeaseTimes) -> Floats:
    """The correlation of silences, over the windows in which both leases exist."""
    windows = _silence_windows(seen)
    active = np.zeros((seen.leases, windows.max(initial=0) + 1), np.bool_)
    active[seen.lease, windows] = True
    exists = np.maximum.accumulate(active, axis=1) & np.maximum.accumulate(active[:, ::-1], axis=1)[:, ::-1]
    both = (exists.astype(np.float64) @ exists.T.astype(np.float64)) + _NONE
    silent = (exists & ~active).astype(np.float64)
    one, other = (silent @ exists.T) / both, (exists @ silent.T) / both
    together = (silent @ silent.T) / both - one * other
    return np.asarray(together / np.sqrt(one * (1 - one) * other * (1 - other) + _LITTLE), np.float64)


def score_returns(seen: LeaseTimes) -> Floats:
    """How often two leases returned within `TOGETHER_US`, in the largest number of returns that either had."""
    order = np.lexsort((seen.t_us, seen.lease))
    lease, t_us = seen.lease[order], seen.t_us[order]
    pause = np.diff(t_us, prepend=0)
    first = np.diff(lease, prepend=-1) != 0
    back = first | (pause > SILENT_INTERVALS * _usual_interval_us(seen))
    who, when = lease[back], t_us[back]
    by_time = np.argsort(when, kind="stable")
    who, when = who[by_time], when[by_time]
    found = np.zeros((seen.leases, seen.leases))
    ends = np.searchsorted(when, when + TOGETHER_US, side="right")
    for place, end in enumerate(ends.tolist()):
        np.add.at(found, (who[place], who[place + 1 : end]), 1.0)
    found = found + found.T
    counts = np.bincount(who, minlength=seen.leases)
    return np.asarray(found / np.maximum(1, np.maximum(counts[:, None], counts[None, :])), np.float64)


def _usual_interval_us(seen: LeaseTimes) -> float:
    order = np.lexsort((seen.t_us, seen.lease))
    gaps = np.diff(seen.t_us[order])[np.diff(seen.lease[order]) == 0]
    return float(np.median(gaps)) if gaps.size else 1.0


def _silence_windows(seen: LeaseTimes) -> Numbers:
    width = max(1, int(WINDOW_INTERVALS * _usual_interval_us(seen)))
    return np.asarray(seen.t_us // width, np.int64)


def _compare_means(leases: int, lease: Numbers, t_us: Numbers, value: Floats) -> Floats:
    """Minus the mean difference of the means by window; the least of all for pairs without a common window."""
    window = np.asarray(t_us // MEAN_WINDOW_US, np.int64)
    shape = (leases, int(window.max(initial=0)) + 1)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (lease, window), value)
    np.add.at(counts, (lease, window), 1.0)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    found = np.full((leases, leases), np.nan)
    for place in range(leases):
        apart = np.abs(means - means[place])
        common = np.isfinite(apart).sum(axis=1)
        found[place] = np.where(common > 0, -np.nansum(apart, axis=1) / np.maximum(common, 1), np.nan)
    least = np.nanmin(found) - 1 if np.isfinite(found).any() else -1.0
    return np.asarray(np.nan_to_num(found, nan=least), np.float64)


REGULAR: Final = 0.05
"""An interval this near to the usual one was not broken by anything else."""
SILENT_INTERVALS: Final = 2.5
TOGETHER_US: Final = 4_000_000
WINDOW_INTERVALS: Final = 3.0
"""Length of a window for silences, in usual intervals."""
MEAN_WINDOW_US: Final = 1_200_000_000
LATE_US: Final = 5_000_000
_NONE: Final = 1e-9
_LITTLE: Final = 1e-6

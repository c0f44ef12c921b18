"""Clocks that disagree: how far one file's clock is ahead of another's, from packets that both hold.

A packet from u to v, seen at both ends, has times that differ by the clock difference plus its travel time; a packet
from v to u, by the clock difference minus the travel time. Half the sum of the two is the clock difference, as in NTP,
whichever file was recorded at which end. Medians remove stragglers. If all packets went one way, the travel time stays
in the estimate, and the report says so.

Captures recognise a packet by its mark. Taps have no marks: there the times of a link in both files are laid over one
another, and the shift at which most of them coincide is taken; irregularities of the traffic are the same at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.capture.reading_report import ClockCorrection

Integers: TypeAlias = NDArray[np.int64]
Times: TypeAlias = tuple[Integers, Integers]
"""Times of the same link in one file, and in another."""


class ClockDifference(msgspec.Struct, frozen=True):
    """How far the second of two files is ahead of the first."""

    ahead_us: int
    packets: int
    spread_us: int
    both_ways: bool


class Sightings(msgspec.Struct, frozen=True):
    """Packets of one capture: a sample that takes the same packets in every file."""

    mark: Integers
    t_us: Integers
    link: NDArray[np.uint64]
    """Equal for both directions."""
    forward: NDArray[np.bool_]

    def once(self) -> Sightings:
        """Packets whose mark was seen once; repeated marks cannot be matched."""
        _, first, count = np.unique(self.mark, return_index=True, return_counts=True)
        kept = first[count == 1]
        return Sightings(self.mark[kept], self.t_us[kept], self.link[kept], self.forward[kept])


def set_clocks(
    paths: Sequence[str], shared: Callable[[int, int], int], compare: Callable[[int, int], ClockDifference | None]
) -> tuple[list[int], list[ClockCorrection]]:
    """Set all files by the first: each by the file already set with which it shares most.

    Returns how far each is ahead, and the report for all files except the first.
    """
    ahead: dict[int, int] = {}
    clocks: dict[int, ClockCorrection] = {}
    common = [(shared(*pair), *pair) for pair in combinations(range(len(paths)), 2)]
    either = [way for count, a, b in common if count for way in ((count, a, b), (count, b, a))]
    ways = sorted(either, key=lambda way: (-way[0], way[1:]))
    for island in range(len(paths)):
        if island in ahead:
            continue
        ahead[island], clocks[island] = 0, ClockCorrection(paths[island], None)
        while found := next(_steps(ways, ahead, compare), None):
            old, new, difference = found
            ahead[new] = ahead[old] + difference.ahead_us
            told = (difference.ahead_us, difference.packets, difference.spread_us, difference.both_ways)
            clocks[new] = ClockCorrection(paths[new], paths[old], *told)
    return [ahead[file] for file in range(len(paths))], [clocks[file] for file in range(1, len(paths))]


def count_shared(first: Sightings, second: Sightings) -> int:
    return len(np.intersect1d(first.mark, second.mark, assume_unique=True))


def compare_by_marks(first: Sightings, second: Sightings) -> ClockDifference | None:
    """From packets that both files hold once."""
    _, a, b = np.intersect1d(first.mark, second.mark, assume_unique=True, return_indices=True)
    if len(a) < PACKETS_MIN:
        return None
    differences = second.t_us[b] - first.t_us[a]
    link, forward = first.link[a], first.forward[a]
    there = _medians(link[forward], differences[forward])
    back = _medians(link[~forward], differences[~forward])
    middles = [(there[link] + back[link]) / 2 for link in there.keys() & back.keys()]
    ahead_us = round(float(np.median(middles if middles else differences)))
    return ClockDifference(ahead_us, len(a), _error_quantile(differences - ahead_us), bool(middles))


def compare_by_rhythm(there: Times, back: Times) -> ClockDifference | None:
    """From the times of a link in the first and in the second file: one direction, then the other."""
    known = [shifts for way in (there, back) if len(shifts := _find_shift(*way))]
    if not known:
        return None
    ahead_us = round(float(np.mean([np.median(shifts) for shifts in known])))
    differences = np.concatenate(known)
    return ClockDifference(ahead_us, len(differences), _error_quantile(differences - ahead_us), len(known) == 2)


def _steps(
    ways: list[tuple[int, int, int]], ahead: dict[int, int], compare: Callable[[int, int], ClockDifference | None]
) -> Iterator[tuple[int, int, ClockDifference]]:
    """Files that can be set by one that is set; pairs that fail are removed."""
    for way in list(ways):
        _, old, new = way
        if old in ahead and new not in ahead:
            if (difference := compare(old, new)) is not None:
                yield old, new, difference
            ways.remove(way)


def _medians(link: NDArray[np.uint64], differences: Integers) -> dict[int, float]:
    order = np.lexsort((differences, link))
    links, starts, counts = np.unique(link[order], return_index=True, return_counts=True)
    middle = (differences[order[starts + (counts - 1) // 2]] + differences[order[starts + counts // 2]]) / 2
    return dict(zip(links.tolist(), middle.tolist(), strict=True))


def _find_shift(first: Integers, second: Integers) -> Integers:
    """The differences that lie closest together, if enough of the times coincide there."""
    if min(len(first), len(second)) < PACKETS_MIN:
        return np.empty(0, np.int64)
    differences = np.sort((second[None, :TIMES_MAX] - first[:TIMES_MAX, None]).ravel())
    within = np.searchsorted(differences, differences + MEETING_US, side="right") - np.arange(len(differences))
    best = int(np.argmax(within))
    if within[best] < max(PACKETS_MIN, MEETING_SHARE * min(len(first), len(second), TIMES_MAX)):
        return np.empty(0, np.int64)
    return differences[best : best + int(within[best])]


def _error_quantile(residuals: Integers) -> int:
    return int(np.quantile(np.abs(residuals), 0.9))


PACKETS_MIN: Final = 3
"""Fewer common packets say nothing."""
TIMES_MAX: Final = 256
"""Times of a link that are compared, all with all."""
MEETING_US: Final = 2_000
MEETING_SHARE: Final = 0.3

"""Clocks that disagree: how far one file's is ahead of another's, from what both saw.

A packet from u to v, seen at both ends, has times that differ by the difference of the clocks plus its time on the way;
one from v to u by the difference less the time on the way. Half the sum of the two is the difference of the clocks, as
in NTP, and it does not matter which file was recorded at which end. Medians keep stragglers out. Where all packets went
one way, their time on the way stays in the estimate, and this is said.

Captures know a packet again by its mark. Taps have none: there the times of a link in both are laid over one another,
and the shift at which most of them meet is taken; what traffic is uneven by is the same at both ends.
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
"""Of the same link in one file, and in another."""


class ClockDifference(msgspec.Struct, frozen=True):
    """How far the second of two files is ahead of the first."""

    ahead_us: int
    packets: int
    spread_us: int
    both_ways: bool


class Sightings(msgspec.Struct, frozen=True):
    """Packets of one capture: a sample that takes the same ones in every file."""

    mark: Integers
    t_us: Integers
    link: NDArray[np.uint64]
    """The same for both ways."""
    forward: NDArray[np.bool_]

    def once(self) -> Sightings:
        """Those whose mark was seen once; of others it is not known which is which."""
        _, first, count = np.unique(self.mark, return_index=True, return_counts=True)
        kept = first[count == 1]
        return Sightings(self.mark[kept], self.t_us[kept], self.link[kept], self.forward[kept])


def set_clocks(
    paths: Sequence[str], shared: Callable[[int, int], int], compare: Callable[[int, int], ClockDifference | None]
) -> tuple[list[int], list[ClockCorrection]]:
    """Set all files by the first: each by that one of those already set with which it shares most.

    Returns how far each is ahead, and what is to be told of all but the first.
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
    """From packets that both saw once."""
    _, a, b = np.intersect1d(first.mark, second.mark, assume_unique=True, return_indices=True)
    if len(a) < PACKETS_MIN:
        return None
    differences = second.t_us[b] - first.t_us[a]
    link, forward = first.link[a], first.forward[a]
    there = _medians(link[forward], differences[forward])
    back = _medians(link[~forward], differences[~forward])
    middles = [(there[link] + back[link]) / 2 for link in there.keys() & back.keys()]
    ahead_us = round(float(np.median(middles if middles else differences)))
    return ClockDifference(ahead_us, len(a), _spread(differences - ahead_us), bool(middles))


def compare_by_rhythm(there: Times, back: Times) -> ClockDifference | None:
    """From the times of a link in the first and in the second file: of one way, and of the other."""
    known = [shifts for way in (there, back) if len(shifts := _meet(*way))]
    if not known:
        return None
    ahead_us = round(float(np.mean([np.median(shifts) for shifts in known])))
    differences = np.concatenate(known)
    return ClockDifference(ahead_us, len(differences), _spread(differences - ahead_us), len(known) == 2)


def _steps(
    ways: list[tuple[int, int, int]], ahead: dict[int, int], compare: Callable[[int, int], ClockDifference | None]
) -> Iterator[tuple[int, int, ClockDifference]]:
    """Files that can be set by one that is; ways that lead nowhere are struck off."""
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


def _meet(first: Integers, second: Integers) -> Integers:
    """The differences that lie closest together, if enough of the times meet there."""
    if min(len(first), len(second)) < PACKETS_MIN:
        return np.empty(0, np.int64)
    differences = np.sort((second[None, :TIMES_MAX] - first[:TIMES_MAX, None]).ravel())
    within = np.searchsorted(differences, differences + MEETING_US, side="right") - np.arange(len(differences))
    best = int(np.argmax(within))
    if within[best] < max(PACKETS_MIN, MEETING_SHARE * min(len(first), len(second), TIMES_MAX)):
        return np.empty(0, np.int64)
    return differences[best : best + int(within[best])]


def _spread(residuals: Integers) -> int:
    return int(np.quantile(np.abs(residuals), 0.9))


PACKETS_MIN: Final = 3
"""Fewer that both saw say nothing."""
TIMES_MAX: Final = 256
"""Of a link, so many times are compared: all with all."""
MEETING_US: Final = 2_000
MEETING_SHARE: Final = 0.3

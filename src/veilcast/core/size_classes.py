"""Filling: groups of elements are brought to a few sizes and out of their order before they leave (hardened).

Pure. How many elements a range has tells where it lies, and how many a publication has tells its topic's attributes;
prefixes that go out from the shortest to the longest tell whoever matches the level of each tag. So each group is
filled up to a power of two with elements that nobody else has, and sorted. Elements are keyed, and to whoever lacks the
key their order is chance; and it is the same each time, so what is sent again is what it was. What remains: of how many
groups a subscription consists, and the size of each up to a factor of two. Fillers are never wanted by anybody or never
published: in the time of an epoch who matches may suspect tags that nothing ever meets.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from veilcast.core.match_elements import ElementGroups
from veilcast.wire.geometry import SUBJECTS_MAX


def pad_groups(groups: ElementGroups, filler: Callable[[int], bytes]) -> ElementGroups:
    """Each group with fillers, as far as there is room for all of them; no two fillers have one number."""
    room, numbers = SUBJECTS_MAX - sum(map(len, groups)), count()
    full = []
    for group in groups:
        short = min(_power(len(group)) - len(group), room)
        room -= short
        full.append(tuple(sorted((*group, *(filler(next(numbers)) for _ in range(short))))))
    return tuple(sorted(full))


def _power(size: int) -> int:
    """The first power of two that is no smaller."""
    return 1 << (size - 1).bit_length()

"""Size classes: groups of elements are padded to a few sizes and sorted before they leave (hardened).

The number of elements of a range shows where it lies, and the number of a publication's elements shows its topic's
attributes. Prefixes in order from the shortest to the longest would show the matching node the level of each tag. So
each group is filled up to a power of two with fillers that occur nowhere else, and sorted. Elements are keyed, so
without the key their order looks random; it is the same each time, so a repeat is equal to the first sending.

An observer still sees the number of groups of a subscription, and the size of each up to a factor of two. Nobody ever
wants or publishes a filler: within an epoch a matching node may suspect tags that never meet another.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from veilcast.core.match_elements import ElementGroups
from veilcast.wire.geometry import SUBJECTS_MAX


def pad_groups(groups: ElementGroups, filler: Callable[[int], bytes]) -> ElementGroups:
    """Each group with fillers, as far as `SUBJECTS_MAX` allows for all groups together.

    No two fillers have one number.
    """
    room, numbers = SUBJECTS_MAX - sum(map(len, groups)), count()
    full = []
    for group in groups:
        short = min(_next_power_of_two(len(group)) - len(group), room)
        room -= short
        full.append(tuple(sorted((*group, *(filler(next(numbers)) for _ in range(short))))))
    return tuple(sorted(full))


def _next_power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()

"""Matchers: find the pseudonyms that a publication is for, by tags alone.

`ExactMatcher` serves the hardened server: a lease is a conjunction of constraints, and the match is exact up to the
coarse cells of its ranges. `FilterMatcher` is the paper's: all subjects of a client share one Bloom filter, and a
publication matches if the filter contains an element of each of its groups. A Bloom filter cannot remove an element, so
the matcher rebuilds the client's filter from the remaining tags; the server has them in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from veilcast.core.match_elements import ElementGroups
from veilcast.topics import BloomIndex, Geometry
from veilcast.topics.tag_index import TagIndex
from veilcast.wire.geometry import MOMENT_MAX


class IndexedLease(NamedTuple):
    """A lease, or a part of one, as the server stores it."""

    name: bytes
    part: bytes
    tags: ElementGroups
    until_us: int


class Matcher(Protocol):
    """Bounded by its index, which raises `LocalError` when it is full."""

    def put(self, name: bytes, part: bytes, tags: ElementGroups, until_us: int) -> None:
        """Add a lease, or this part of it, in place of any earlier one."""

    def put_many(self, leases: Sequence[IndexedLease]) -> None:
        """Add the leases of an earlier run to an empty matcher; much faster than one by one."""

    def remove(self, name: bytes, part: bytes) -> None:
        """Remove the lease or part, if there is one."""

    def match(self, groups: ElementGroups) -> list[bytes]: ...

    def expire(self, now: int) -> list[bytes]:
        """Remove expired leases and return their names."""

    def next_us(self) -> int | None: ...

    def __len__(self) -> int: ...


class ExactMatcher:
    def __init__(self, capacity: int) -> None:
        self._index = TagIndex(capacity=capacity)
        self._numbers: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, name: bytes, part: bytes, tags: ElementGroups, until_us: int) -> None:
        number = self._index.insert(tags, until_us)
        self.remove(name, part)
        self._numbers[name], self._names[number] = number, name

    def put_many(self, leases: Sequence[IndexedLease]) -> None:
        by_end: dict[int, list[IndexedLease]] = {}
        for lease in leases:
            by_end.setdefault(lease.until_us, []).append(lease)
        for until_us, some in by_end.items():
            numbers = self._index.insert_many([lease.tags for lease in some], until_us).tolist()
            self._names.update(zip(numbers, (lease.name for lease in some), strict=True))
        self._numbers.update((name, number) for number, name in self._names.items())

    def remove(self, name: bytes, part: bytes) -> None:
        if (number := self._numbers.pop(name, None)) is not None:
            del self._names[number]
            self._index.remove(number)

    def match(self, groups: ElementGroups) -> list[bytes]:
        tags = [tag for group in groups for tag in group]
        return [self._names[number] for number in self._index.match(tags).tolist()]

    def expire(self, now: int) -> list[bytes]:
        names = [self._names.pop(number) for number in self._index.expire(now).tolist()]
        for name in names:
            del self._numbers[name]
        return names

    def next_us(self) -> int | None:
        return self._index.next_expiry()


class FilterMatcher:
    def __init__(self, geometry: Geometry, capacity: int) -> None:
        self._index = BloomIndex(geometry, capacity=capacity)
        self._parts: dict[bytes, dict[bytes, tuple[bytes, ...]]] = {}
        self._numbers: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, name: bytes, part: bytes, tags: ElementGroups, until_us: int) -> None:
        parts = {**self._parts.get(name, {}), part: _merge_tags(tags)}
        self._rebuild(name, parts)

    def put_many(self, leases: Sequence[IndexedLease]) -> None:
        for lease in leases:
            self._parts.setdefault(lease.name, {})[lease.part] = _merge_tags(lease.tags)
        filters = [[_merge_tags(parts.values())] for parts in self._parts.values()]
        numbers = self._index.insert_many(filters, MOMENT_MAX).tolist()
        self._names.update(zip(numbers, self._parts, strict=True))
        self._numbers.update((name, number) for number, name in self._names.items())

    def remove(self, name: bytes, part: bytes) -> None:
        remaining = {each: tags for each, tags in self._parts.get(name, {}).items() if each != part}
        self._rebuild(name, remaining)

    def match(self, groups: ElementGroups) -> list[bytes]:
        found = [self._index.match(group) for group in groups]
        if not found:
            return []
        numbers = found[0]
        for others in found[1:]:
            numbers = np.intersect1d(numbers, others, assume_unique=True)
        return [self._names[number] for number in numbers.tolist()]

    def expire(self, now: int) -> list[bytes]:
        return []

    def next_us(self) -> int | None:
        return None

    def _rebuild(self, name: bytes, parts: dict[bytes, tuple[bytes, ...]]) -> None:
        elements = _merge_tags(parts.values())
        number = self._index.insert([elements], MOMENT_MAX) if elements else None
        if (old := self._numbers.pop(name, None)) is not None:
            del self._names[old]
            self._index.remove(old)
        self._parts.pop(name, None)
        if number is not None:
            self._parts[name], self._numbers[name], self._names[number] = parts, number, name


def _merge_tags(groups: Iterable[tuple[bytes, ...]]) -> tuple[bytes, ...]:
    """All tags of these groups, each once."""
    return tuple(dict.fromkeys(tag for group in groups for tag in group))

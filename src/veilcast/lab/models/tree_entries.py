"""Entries: what nodes of a coalition write down of the trees that they were made part of.

A row is one instruction that one of them got in one refresh: whom it hands on to, how long the bundle was that it came
in, how many publications then took this way; and, from good clocks, how many hops behind the root of the tree it is.
Of what topic it is they know, if one of them reads the topic. Who sent the bundle they do not see, nor who hands to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from veilcast.observe import ServerRow

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TreeEntries:
    refresh: Numbers
    observer: Numbers
    parent: Numbers
    topic: Numbers
    size: Numbers
    forwarded: Numbers
    hops_behind_root: Numbers
    """Hops behind the root: 0 for the root itself, 1 for the guard next to it; -1 for who is no such."""

    def where(self, rows: NDArray[np.bool_]) -> TreeEntries:
        return TreeEntries(*(getattr(self, each.name)[rows] for each in fields(self)))

    def before(self, refresh: int) -> TreeEntries:
        """Those of all refreshes before this one."""
        return self.where(self.refresh < refresh)

    def of_topic(self, topic: int) -> TreeEntries:
        return self.where(self.topic == topic)

    def __len__(self) -> int:
        return len(self.parent)


def join_entries(parts: Sequence[TreeEntries]) -> TreeEntries:
    return TreeEntries(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(TreeEntries)))


def entry_rows(
    entries: TreeEntries, run: str, name: Callable[[int], str], tag: Callable[[int, int], bytes]
) -> Iterator[ServerRow]:
    """As rows of the table `server`: the role says who got it, the pseudonym is the parent. `tag` is what a topic is
    called in a refresh."""
    columns = (entries.refresh, entries.observer, entries.parent, entries.topic, entries.size)
    for refresh, observer, parent, topic, size in zip(*(column.tolist() for column in columns), strict=True):
        yield ServerRow(run, refresh, 0, f"tree:{name(observer)}", name(parent), tag(refresh, topic), size)

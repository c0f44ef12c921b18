"""Entries: what the nodes of a coalition record of the trees that they are part of.

A row is one instruction that one of them got in one refresh: the node to forward to, the length of the bundle, the
number of publications that took this path; and, from good clocks, the number of hops behind the root of the tree. They
know the topic if one of them reads it. They see neither the sender of the bundle nor the nodes that forward to them.
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
    """0 for the root itself, 1 for the guard next to it; -1 for other nodes."""

    def where(self, rows: NDArray[np.bool_]) -> TreeEntries:
        return TreeEntries(*(getattr(self, each.name)[rows] for each in fields(self)))

    def before(self, refresh: int) -> TreeEntries:
        """The entries of all refreshes before this one."""
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
    """Rows of the table `server`: the role names the observer, the pseudonym is the parent. `tag` gives the name of a
    topic in a refresh."""
    columns = (entries.refresh, entries.observer, entries.parent, entries.topic, entries.size)
    for refresh, observer, parent, topic, size in zip(*(column.tolist() for column in columns), strict=True):
        yield ServerRow(run, refresh, 0, f"tree:{name(observer)}", name(parent), tag(refresh, topic), size)

"""Entries: what the nodes of a coalition record of the trees that they are part of.

A row is one instruction that one of them got in one refresh: the node to forward to, the length of the bundle, the
number of publications that took this path; and, from good clocks, the number of hops behind the root of the tree. They
know the topic if one of them reads it. They see neither the sender of the bundle nor the nodes that forward to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

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
    tree: Numbers
    """The number of the tree; a topic has a tree for each of its readers."""

    def where(self, rows: NDArray[np.bool_] | Numbers) -> TreeEntries:
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

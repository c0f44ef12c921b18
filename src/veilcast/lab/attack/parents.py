"""Who is whose parent: what a coalition makes of the trees that its nodes were made part of, refresh after refresh.

The root of a tree has as many children as there can be, in every refresh, and everybody else is a leaf most of the
time. So who is told to hand on to whom adds up (Wright and others 2002, for circuits: the predecessor attack):

- `counts`: how often one was somebody's parent;
- `lasting`: how often the same node was told so of the same parent. New trees bring new parents; what stays was meant
  to stay;
- `likelihood`: counts weighed by what is known of the trees' shape;
- `depth`: the longest bundle that came with one as the parent: bundles that go down the tree shrink on their way, and
  what is handed the longest stands right below the root;
- `volume`: the same, by publications that were then carried. Everything climbs to the root, and what is near it
  carries much.

Each gives a score to all nodes; whoever takes them knows whom of its own to leave out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from veilcast.lab.kernels.entries import Entries

Scores = NDArray[np.float64]


def counts(entries: Entries, nodes: int) -> Scores:
    return np.bincount(entries.parent, minlength=nodes).astype(np.float64)


def lasting(entries: Entries, nodes: int) -> Scores:
    pairs, times = np.unique(entries.observer * nodes + entries.parent, return_counts=True)
    return _most(pairs % nodes, times, nodes)


def likelihood(entries: Entries, nodes: int, insiders: int, branching: int) -> Scores:
    """How much likelier what was seen is with each node at the root of all trees, than with it anywhere else in each.

    Of a node with c children, those of the coalition are a draw of so many out of all others.
    """
    refreshes, which = np.unique(entries.refresh, return_inverse=True)
    seen = np.zeros((refreshes.size, nodes), np.int64)
    np.add.at(seen, (which, entries.parent), 1)
    children = np.bincount((np.arange(1, nodes) - 1) // branching, minlength=nodes)
    at_root = hypergeom.pmf(np.arange(branching + 1), nodes - 1, branching, insiders)
    kinds, share = np.unique(children[1:], return_counts=True)
    elsewhere = hypergeom.pmf(np.arange(branching + 1)[:, None], nodes - 2, kinds, insiders) @ share / (nodes - 1)
    ratio = np.log(at_root + _NOISE) - np.log(elsewhere + _NOISE)
    return np.asarray(ratio[np.minimum(seen, branching)].sum(axis=0), np.float64)


def standing(counted: Scores) -> Scores:
    """How far each stands out among all, in deviations that chance would have: so that what is counted of many trees
    can be held against what is counted of few."""
    mean = counted.mean()
    return np.asarray((counted - mean) / np.sqrt(max(mean, 1e-9)), np.float64)


def depth(entries: Entries, nodes: int) -> Scores:
    return _most(entries.parent, entries.size, nodes)


def volume(entries: Entries, nodes: int) -> Scores:
    return _most(entries.parent, entries.carried, nodes)


def _most(parent: NDArray[np.int64], value: NDArray[np.int64], nodes: int) -> Scores:
    """By node, the most that anything of it has; 0 where there is nothing."""
    most = np.zeros(nodes)
    np.maximum.at(most, parent, value)
    return most


_NOISE: Final = 1e-12
"""The probability of what cannot be."""

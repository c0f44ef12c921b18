"""Attacks by colluding nodes of the trees of P2 4.2: parents, guards, and whole paths.

Parents: the root of a tree has as many children as possible in every refresh, and every other node is a leaf most of
the time. So the instructions to hand on to a parent add up (Wright and others 2002, the predecessor attack on
circuits):
- `score_counts`: how often a node was a parent;
- `score_lasting`: how often the same node was told to hand on to the same parent. New trees bring new parents; a parent
  that stays was meant to stay;
- `score_likelihood`: counts weighed by the known shape of the trees;
- `score_depth`: the longest bundle that named the node as the parent. Bundles shrink on their way down, so the node
  with the longest one stands right below the root;
- `score_volume`: the same for the publications that were carried then. Everything climbs to the root, so nodes near it
  carry much.

Guards: a guard of the coalition knows that it is one, because it hands on to the same node in each refresh. With good
clocks it knows how many hops behind the root it stands, and it knows the next node. So of a chain with the places 1, 2,
... behind the root, the coalition holds some, and knows the names of the nodes right behind these. The subscriber
stands at a place that is not the coalition's; each place that the recipe allows is equally likely. Its probability goes
to the known name, or to all other nodes if no name is known. Where guards come and go, time says more. A named node
that changes was no subscriber, and one that stays while guards would have gone is a likelier one.

Paths: P2 grants that a coalition that owns every node from the origin to a subscriber finds the subscriber, and claims
that nothing less will do. An origin knows that it is one, and neighbours in one coalition recognise what they hand to
each other. So they know how many of them a publication passed in a row, and the next node. If that number is the depth
of the trees, the next node is the subscriber; the fewer they are, the less likely.

Publishers: an insider that forwards a publication knows that it began in its own branch, and not at the parent that it
hands the publication to. A node that begins all publications itself is never handed one, and `score_never_handed` finds
it. If publications begin at random nodes, it finds nobody.

Every function scores all nodes; the caller leaves out the coalition's own. `insider.tree_job` makes the observations
out of tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.tree_entries import TreeEntries

Scores = NDArray[np.float64]


class SeenPaths(NamedTuple):
    """What insiders on the paths of some publications saw, path by path from the origin on."""

    publication: NDArray[np.int64]
    observer: NDArray[np.int64]
    following: NDArray[np.int64]
    """The next node of the path."""
    begins: NDArray[np.bool_]
    """Whether the observer is the origin."""


@dataclass(frozen=True, eq=False)
class TreeObservations:
    """Instructions that a coalition received, for one topic or for all of them, and what it knows of how trees are
    made."""

    entries: TreeEntries
    nodes: int
    honest: NDArray[np.bool_]
    epochs: int = 1
    paths: SeenPaths | None = None
    branching: int | None = None
    """Children of an inner node, if the trees have the paper's shape."""
    places: Sequence[int] | None = None
    """Places behind the root where a subscriber may stand, if the trees have hardened chains."""
    turnover: float = 1.0
    """Probability that a guard is gone by the next refresh."""

    def first_epochs(self, epochs: int) -> TreeObservations:
        """The observations of the first epochs."""
        return replace(self, entries=self.entries.before(epochs), epochs=epochs)

    def of_topic(self, topic: int) -> TreeObservations:
        return replace(self, entries=self.entries.of_topic(topic))


def score_parents(seen: TreeObservations) -> Scores:
    return standardise_counts(score_counts(seen.entries, seen.nodes))


def score_lasting_parents(seen: TreeObservations) -> Scores:
    return standardise_counts(score_lasting(seen.entries, seen.nodes))


def score_disclosed(seen: TreeObservations) -> Scores:
    """For how many epochs the node has been disclosed by counting: it was first, alone, `STAYS` epochs in a row, and
    these are counted, too. 0 for a node that never was."""
    counts = np.zeros((seen.epochs, seen.nodes))
    np.add.at(counts, (seen.entries.refresh, seen.entries.parent), 1.0)
    so_far = np.cumsum(counts, axis=0)[:, seen.honest]
    first = so_far == so_far.max(axis=1, keepdims=True)
    leads = first & (np.count_nonzero(first, axis=1) == 1)[:, None]
    found, honest = np.zeros(seen.nodes), np.flatnonzero(seen.honest)
    for epoch in reversed(range(STAYS, seen.epochs + 1)):
        found[honest[leads[epoch - STAYS : epoch].all(axis=0)]] = seen.epochs - (epoch - STAYS)
    return found


def score_known_shape(seen: TreeObservations) -> Scores:
    insiders = int(np.count_nonzero(~seen.honest))
    return score_likelihood(seen.entries, seen.nodes, insiders, seen.branching or 1)


def score_known_chain(seen: TreeObservations) -> Scores:
    return score_guards(seen.entries, seen.honest, seen.places or (), seen.turnover)


class ChainLink(NamedTuple):
    """Observations right behind one place of a chain."""

    names: frozenset[int]
    stays: float
    """Log-likelihood of these observations, if the node there is a guard."""


def score_guards(entries: TreeEntries, honest: NDArray[np.bool_], allowed: Sequence[int], turnover: float) -> Scores:
    """The probability that it is the subscriber, by node. `allowed` are the places where it may stand, counted from the
    root; `turnover` is the probability that a guard is gone by the next refresh."""
    crowd = int(np.count_nonzero(honest))
    places = np.unique(entries.hops_behind_root[entries.hops_behind_root >= 0]).tolist()
    links = {place: _link(entries, place, turnover, crowd) for place in places}
    # The near end of the chain is no subscriber, even if an insider at the root names it.
    named = {name for link in links.values() for name in link.names}
    rest = honest.copy()
    rest[[*named]] = False
    choices: list[tuple[NDArray[np.bool_], float]] = []
    for place in allowed:
        before = links.get(place - 1)
        if place in links:
            continue  # The place belongs to the coalition.
        if before is None:
            choices.append((rest, 0.0))
        elif len(before.names) == 1:
            choices.append((np.isin(np.arange(honest.size), [*before.names]) & honest, -before.stays))
    choices = [(who, weight) for who, weight in choices if who.any()]
    if not choices:
        return np.asarray(honest / crowd, np.float64)
    most = max(weight for _, weight in choices)
    found = sum((np.exp(weight - most) * who / np.count_nonzero(who) for who, weight in choices), np.zeros(honest.size))
    return np.asarray(found / found.sum(), np.float64)


def score_paths(seen: TreeObservations) -> Scores:
    """The longest row of insiders from an origin on that it came after, by node."""
    longest = np.zeros(seen.nodes)
    if seen.paths is None:
        return longest
    row, current, following = 0, -1, -1
    for publication, observer, after, begins in zip(*(column.tolist() for column in seen.paths), strict=True):
        # An insider that another one did not hand the publication to stands behind an honest node.
        if begins:
            row, current = 1, publication
        elif publication == current and observer == following:
            row += 1
        else:
            current = -1
        if publication == current:
            following = after
            longest[after] = max(longest[after], row if seen.honest[after] else 0)
    return longest


def score_counts(entries: TreeEntries, nodes: int) -> Scores:
    return np.bincount(entries.parent, minlength=nodes).astype(np.float64)


def score_lasting(entries: TreeEntries, nodes: int) -> Scores:
    pairs, times = np.unique(entries.observer * nodes + entries.parent, return_counts=True)
    return _most(pairs % nodes, times, nodes)


def score_likelihood(entries: TreeEntries, nodes: int, insiders: int, branching: int) -> Scores:
    """Log-likelihood ratio of the counts with each node at the root of all trees against anywhere else in each.

    Of a node with c children, the coalition's children are a draw of c from all other nodes.
    """
    from scipy.stats import hypergeom

    refreshes, which = np.unique(entries.refresh, return_inverse=True)
    seen = np.zeros((refreshes.size, nodes), np.int64)
    np.add.at(seen, (which, entries.parent), 1)
    children = np.bincount((np.arange(1, nodes) - 1) // branching, minlength=nodes)
    at_root = hypergeom.pmf(np.arange(branching + 1), nodes - 1, branching, insiders)
    kinds, share = np.unique(children[1:], return_counts=True)
    elsewhere = hypergeom.pmf(np.arange(branching + 1)[:, None], nodes - 2, kinds, insiders) @ share / (nodes - 1)
    ratio = np.log(at_root + _NOISE) - np.log(elsewhere + _NOISE)
    return np.asarray(ratio[np.minimum(seen, branching)].sum(axis=0), np.float64)


def standardise_counts(counted: Scores) -> Scores:
    """Counts in standard deviations above the mean, so that counts of many trees compare with counts of few."""
    mean = counted.mean()
    return np.asarray((counted - mean) / np.sqrt(max(mean, 1e-9)), np.float64)


def score_never_handed(entries: TreeEntries, nodes: int) -> Scores:
    """How much less often it was handed publications than its known children give, in standard deviations. A child
    with a longer bundle has a larger branch, which more publications begin in. Roots and guards hand on all
    publications, so their instructions do not count."""
    inner = entries.where(entries.hops_behind_root < 0)
    handed = np.bincount(inner.parent, inner.forwarded, nodes)
    expected = np.bincount(inner.parent, inner.size, nodes) * (inner.forwarded.sum() / max(1, inner.size.sum()))
    return np.asarray((expected - handed) / np.sqrt(np.where(expected > 0, expected, 1.0)), np.float64)


def score_depth(entries: TreeEntries, nodes: int) -> Scores:
    return _most(entries.parent, entries.size, nodes)


def score_volume(entries: TreeEntries, nodes: int) -> Scores:
    return _most(entries.parent, entries.forwarded, nodes)


def _link(entries: TreeEntries, place: int, turnover: float, crowd: int) -> ChainLink:
    """The observations of a place by refresh, in order; several chains of one topic are treated as one."""
    here = entries.hops_behind_root == place
    order = np.argsort(entries.refresh[here], kind="stable")
    when, who = entries.refresh[here][order], entries.parent[here][order]
    stays = 0.0
    for gap, same in zip(np.diff(when).tolist(), (who[1:] == who[:-1]).tolist(), strict=True):
        kept = (1.0 - turnover) ** gap
        stays += np.log(max(kept if same else 0.0, _IMPOSSIBLE) + (1.0 - kept) / crowd)
    return ChainLink(frozenset(who.tolist()), float(stays))


def _most(parent: NDArray[np.int64], value: NDArray[np.int64], nodes: int) -> Scores:
    """The largest value of each node; 0 for a node without values."""
    most = np.zeros(nodes)
    np.maximum.at(most, parent, value)
    return most


_IMPOSSIBLE: Final = 1e-300
STAYS: Final = 5
"""Epochs in a row after which a lead counts."""
_NOISE: Final = 1e-12
"""Probability of an impossible observation."""

"""Who is whose parent: what a coalition makes of the trees that its nodes were made part of, refresh after refresh.

The root of a tree has as many children as there can be, in every refresh, and everybody else is a leaf most of the
time. So who is told to hand on to whom adds up (Wright and others 2002, for circuits: the predecessor attack):

- `score_counts`: how often one was somebody's parent;
- `score_lasting`: how often the same node was told so of the same parent. New trees bring new parents; what stays was
meant
  to stay;
- `score_likelihood`: counts weighed by what is known of the trees' shape;
- `score_depth`: the longest bundle that came with one as the parent: bundles that go down the tree shrink on their way,
and
  what is handed the longest stands right below the root;
- `score_volume`: the same, by publications that were then carried. Everything climbs to the root, and what is near it
  carries much.

Each gives a score to all nodes; whoever takes them knows whom of its own to leave out.


Guards against guards: what members of a chain that know how it is made can tell of who stands on it.

A guard of the coalition knows that it is one, for it is told to hand on to the same node in each refresh; with good
clocks it knows how many hops behind the root it stands; and it knows the next one. So of a chain whose places behind
the root are 1, 2, ..., some are taken by the coalition, and those right behind these are known by name. The subscriber
stands at a place that is not the coalition's, each of those that the recipe allows being as likely as another: its mass
falls on a name where there is one, and on everybody else where there is none.

Where guards come and go, time says more. Who is named at a place and changes was no subscriber, and who stays while
guards would have gone is one all the more.


Whole paths: what a coalition makes of publications that it held from their origin on (P2 4.2).

P2 grants that a subscriber is found by whoever owns every node from the origin to it, and claims that nothing less
will do. An origin knows that it is one, and neighbours of one coalition recognise what they hand to each other; so they
know how many of them a publication passed in a row, and who got it next. If trees are so many hops deep, and all of
these were theirs, the next is the subscriber; the fewer they were, the less likely.


What colluding nodes make of the trees that they are part of: the table `server` in, the table `guess_from_trees` out.

The role of a row says which of them got an instruction, the pseudonym whom it is to hand on to. Tags may change with
every refresh, but who reads a topic computes them: `words` (run, epoch, topic, tag). The rest is counting, which is
Spark's: the scores are those of `attack.parents`, for each topic and each parent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.tables import GuessRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeObservations:
    """Instructions that a coalition received for one topic, and what it knows of how trees are made."""

    entries: TreeEntries
    nodes: int
    honest: NDArray[np.bool_]
    branching: int | None = None
    """Children of an inner node, if the trees have the paper's shape."""
    places: Sequence[int] | None = None
    """Places behind the root where a subscriber may stand, if the trees have hardened chains."""
    turnover: float = 1.0
    """Probability that a guard is gone by the next refresh."""


def score_known_shape(seen: TreeObservations) -> Scores:
    insiders = int(np.count_nonzero(~seen.honest))
    return score_likelihood(seen.entries, seen.nodes, insiders, seen.branching or 1)


def score_known_chain(seen: TreeObservations) -> Scores:
    return score_guards(seen.entries, seen.honest, seen.places or (), seen.turnover)


class ChainLink(NamedTuple):
    """What was seen right behind one place of a chain."""

    names: frozenset[int]
    stays: float
    """The log-likelihood of it, if it is a guard who stands there."""


def score_guards(entries: TreeEntries, honest: NDArray[np.bool_], allowed: Sequence[int], turnover: float) -> Scores:
    """By node, the probability that it is the subscriber. `allowed` are the places where it may stand, counted from the
    root; `turnover` is the probability with which a guard is gone by the next refresh."""
    crowd = int(np.count_nonzero(honest))
    places = np.unique(entries.hops_behind_root[entries.hops_behind_root >= 0]).tolist()
    links = {place: _link(entries, place, turnover, crowd) for place in places}
    # The near end of the chain is no subscriber, though somebody at the root may name it.
    named = {name for link in links.values() for name in link.names}
    rest = honest.copy()
    rest[[*named]] = False
    choices: list[tuple[NDArray[np.bool_], float]] = []
    for place in allowed:
        before = links.get(place - 1)
        if place in links:
            continue  # It is the coalition's own.
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


def _link(entries: TreeEntries, place: int, turnover: float, crowd: int) -> ChainLink:
    """By what each refresh shows of a place, in order; several chains of one topic are taken for one."""
    here = entries.hops_behind_root == place
    order = np.argsort(entries.refresh[here], kind="stable")
    when, who = entries.refresh[here][order], entries.parent[here][order]
    stays = 0.0
    for gap, same in zip(np.diff(when).tolist(), (who[1:] == who[:-1]).tolist(), strict=True):
        kept = (1.0 - turnover) ** gap
        stays += np.log(max(kept if same else 0.0, _IMPOSSIBLE) + (1.0 - kept) / crowd)
    return ChainLink(frozenset(who.tolist()), float(stays))


_IMPOSSIBLE: Final = 1e-300


def score_paths(runs: NDArray[np.int64], last: NDArray[np.int64], nodes: int) -> NDArray[np.float64]:
    """By node, the longest row of insiders, from an origin on, that it came after."""
    longest = np.zeros(nodes)
    np.maximum.at(longest, last, runs)
    return longest


def guess_from_trees(server: DataFrame, words: DataFrame, *, attacks: Collection[str]) -> DataFrame:
    """Who, by name, is held to read a topic; a node that was nobody's parent has no row."""
    from pyspark.sql import functions as sql

    for attack in attacks:
        if attack not in TREE_ATTACKS:
            raise ConfigError(f"nodes of a tree have no attack {attack!r}; there are {', '.join(TREE_ATTACKS)}")
    told = server.where("role like 'tree:%'").join(words, ["run", "epoch", "tag"])
    coalition = told.groupBy("run").agg(sql.countDistinct("role").alias("coalition"))
    by_pair = told.groupBy("run", "topic", "pseudonym", "role").agg(
        sql.count("*").alias("times"), sql.max("size").alias("longest"), sql.collect_set("epoch").alias("when")
    )
    # One shuffle more brings the pairs of a parent together, and all three scores come of it.
    by_parent = by_pair.groupBy("run", "topic", "pseudonym").agg(
        sql.size(sql.array_distinct(sql.flatten(sql.collect_list("when")))).cast("bigint").alias("epochs"),
        sql.sum("times").cast("double").alias("count"),
        sql.max("times").cast("double").alias("lasting"),
        sql.max("longest").cast("double").alias("depth"),
    )
    scores = sql.explode(
        sql.array(*(sql.struct(sql.lit(attack).alias("attack"), sql.col(attack).alias("score")) for attack in attacks))
    )
    rows = by_parent.join(coalition, ["run"]).withColumn("each", scores)
    return rows.selectExpr(
        *("run", "each.attack", "epochs", "coalition", "topic", "'subscriber' as role", "pseudonym as node"),
        "each.score",
    ).select(*tables.spark_schema(GuessRow).fieldNames())


TREE_ATTACKS: Final = ("count", "lasting", "depth")


def score_counts(entries: TreeEntries, nodes: int) -> Scores:
    return np.bincount(entries.parent, minlength=nodes).astype(np.float64)


def score_lasting(entries: TreeEntries, nodes: int) -> Scores:
    pairs, times = np.unique(entries.observer * nodes + entries.parent, return_counts=True)
    return _most(pairs % nodes, times, nodes)


def score_likelihood(entries: TreeEntries, nodes: int, insiders: int, branching: int) -> Scores:
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


def standardise_counts(counted: Scores) -> Scores:
    """How far each stands out among all, in deviations that chance would have: so that what is counted of many trees
    can be held against what is counted of few."""
    mean = counted.mean()
    return np.asarray((counted - mean) / np.sqrt(max(mean, 1e-9)), np.float64)


def score_depth(entries: TreeEntries, nodes: int) -> Scores:
    return _most(entries.parent, entries.size, nodes)


def score_volume(entries: TreeEntries, nodes: int) -> Scores:
    return _most(entries.parent, entries.forwarded, nodes)


def _most(parent: NDArray[np.int64], value: NDArray[np.int64], nodes: int) -> Scores:
    """By node, the most that anything of it has; 0 where there is nothing."""
    most = np.zeros(nodes)
    np.maximum.at(most, parent, value)
    return most


_NOISE: Final = 1e-12
"""The probability of what cannot be."""

"""Group testing by belief propagation: who asks, given which pools were active (`pools`).

Every test is a noisy OR: a pool is active unless each of its members is idle or goes another way, and nothing else
caused it. Each test tells each of its members the log-likelihood ratio of the result with and without it, the others
being taken as they are believed to be; each member tells each test what the others make of it. Pools share members in
loops, and ways are taken to be independent where they join, so this is an approximation; a few rounds with damping do,
and the order of the scores, which is all that is used, hardly changes after them (Sejdinovic and Johnson 2010).

Every result may be wrong with a small probability, so that no message is certain and contradictions are borne.


Pools: what insiders see as group tests (Dorfman 1943), one for each honest node w and epoch.

A node is in the mesh if it asks for its own sake, or somebody below it does whose way leads through it. So what an
insider notices of w is a test of a pool: w itself, surely, and everybody from whom a way may lead through w, each with
the probability that it does. Distances from the origin are known, and so are the parents that a node may choose from;
each is as likely as another, or, where choices are kept, one that was seen to be chosen before others is likelier than
those, and than third ones. Ways end at insiders, who see whom they are asked by and know whom they asked themselves.

Nothing here is counted twice. A node that was seen to ask an insider is in no other pool, and one that was seen to be
silent to some of its possible parents has chosen among the others, if any. An insider that asked w is a known cause
for which w is in the mesh, and explains away the others (`quiet`).

Where choices are kept, though, whoever prefers a parent that is honest is silent to an insider in fifty epochs for one
reason, and not for fifty: like results of one node share the weight of one.

A test is positive if w asked an insider, or was named in a shell game, or refused an invitation or gave one; the last
three may be due to recruitment too, with a probability that the coalition reads off its own members. It is negative
for certain if w accepted an invitation; and a little if nothing was seen, by the chance that something would have been.
Where answers can be timed, the delay of w's says how far below it the nearest who asks is: two tests, of those who
are nearer, which is negative, and of those who are just as far."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log1p
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.insider.swap_handover import find_named_members
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import ASKED, FOLLOWED, INVITED, RECRUITED, REFUSED, LinkObservations
from veilcast.lab.models.numba_cache import jit


@dataclass(frozen=True, eq=False)
class GroupTests:
    """T of them, with K members of pools in all."""

    epoch: NDArray[np.int32]
    """T, in order."""
    node: NDArray[np.int32]
    """T: below whom the pool lies."""
    positive: NDArray[np.bool_]
    """T: the result."""
    sight: NDArray[np.float64]
    """T: with which probability an active pool would have been noticed; 1 for a positive result."""
    quiet: NDArray[np.float64]
    """T: the probability that nothing but the pool caused the result."""
    weight: NDArray[np.float64]
    """T: how much it counts; less where others say the same for the same reason."""
    offsets: NDArray[np.int64]
    """T + 1: where each pool begins, and where the last one ends."""
    member: NDArray[np.int32]
    """K: who is in the pool."""
    reach: NDArray[np.float64]
    """K: the probability that the way of this member leads through the node."""


def build_group_tests(graph: Graph, sights: LinkObservations, *, kept: bool = False) -> GroupTests:
    """The tests of all epochs. `kept` says that nodes keep the order in which they prefer their parents."""
    enemy = sights.coalition
    recruits, names = recruitment_rate(sights), find_named_members(sights)
    caught = naming_rate(sights, names)
    far = origin_distances(graph, sights)
    better = _preferred(graph.offsets, graph.targets, sights.observer, sights.peer, sights.seen, far, kept)
    parts = [
        _pools(
            graph.offsets, graph.targets, enemy, far[epoch], better,
            sights.observer, sights.peer, sights.seen[epoch], sights.delay[epoch], names[epoch], recruits, caught,
        )
        for epoch in range(len(sights.origin))
    ]  # fmt: skip
    node, positive, sight, quiet, sizes, member, reach = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    epoch = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part[0]) for part in parts])
    weight = _weights(node, positive, sight) if kept else np.ones(node.size)
    return GroupTests(epoch, node, positive, sight, quiet, weight, np.append(0, np.cumsum(sizes)), member, reach)


def origin_distances(graph: Graph, sights: LinkObservations) -> NDArray[np.int32]:
    """E x nodes: from the origin in hops, over those who are there; -1 for whom no flood reaches."""
    floods = zip(sights.present, sights.origin.tolist(), strict=True)
    return np.array([_distances(graph.offsets, graph.targets, present, origin) for present, origin in floods])


def path_probabilities(
    graph: Graph, enemy: NDArray[np.bool_], distance: NDArray[np.int32], node: int
) -> NDArray[np.float64]:
    """By node, the probability that its way leads through this one, and past no insider before."""
    honest, watched = _nearer(graph.offsets, graph.targets, enemy, distance)
    reach, pool, nothing = np.zeros(graph.nodes), np.empty(graph.nodes, np.int32), np.zeros(graph.nodes, np.int8)
    _below(graph.offsets, graph.targets, enemy, distance, honest + watched, nothing, node, reach, pool)
    return reach


def recruitment_rate(sights: LinkObservations) -> float:
    """The share of those outside a mesh who are recruited, as insiders have it: they are outside like others."""
    inside = _by_observer(sights, (sights.seen == ASKED) | (sights.seen == FOLLOWED))
    invited = _by_observer(sights, sights.seen == INVITED)
    outside = sights.coalition & ~inside
    return _share(invited, outside)


def naming_rate(sights: LinkObservations, names: NDArray[np.bool_]) -> float:
    """The share of a mesh that shell games name to insiders, as insiders have it who are in it."""
    inside = _by_observer(sights, (sights.seen == ASKED) | (sights.seen == FOLLOWED))
    return _share(names, inside)


def _weights(node: NDArray[np.int32], positive: NDArray[np.bool_], sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where choices are kept, a node's results have the same hidden cause in all epochs: alike, they count as one."""
    kind = 3 * node.astype(np.int64) + np.where(positive, 0, np.where(sight == 1, 1, 2))
    _, place, count = np.unique(kind, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / count[place], np.float64)


def _share(found: NDArray[np.bool_], among: NDArray[np.bool_]) -> float:
    return int(np.count_nonzero(found & among)) / max(1, int(np.count_nonzero(among)))


def _by_observer(sights: LinkObservations, noticed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """E x nodes: the insiders who noticed it on any of their links."""
    mask = np.zeros(sights.present.shape, np.bool_)
    epoch, link = np.nonzero(noticed)
    mask[epoch, sights.observer[link]] = True
    return mask


@jit
def _pools(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    enemy: NDArray[np.bool_],
    distance: NDArray[np.int32],
    better: NDArray[np.bool_],
    observer: NDArray[np.int32],
    peer: NDArray[np.int32],
    seen: NDArray[np.int8],
    delay: NDArray[np.int16],
    names: NDArray[np.bool_],
    recruits: float,
    caught: float,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.bool_],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.float64],
]:
    """The tests of one epoch: the columns of `GroupTests`, with the sizes of the pools instead of where they begin."""
    nodes = enemy.size
    honest, _ = _nearer(offsets, targets, enemy, distance)
    watched = _chances(offsets, targets, observer, peer, distance, better)
    result, wait = names.astype(np.int8) * REFUSED, np.full(nodes, -1, np.int32)
    for link in range(peer.size):
        w, sight = peer[link], seen[link]
        if sight in (ASKED, RECRUITED):
            result[w], wait[w] = sight, delay[link]
        elif sight in (REFUSED, INVITED) and result[w] not in (ASKED, RECRUITED):
            result[w] = REFUSED
    after = np.full(nodes, -1, np.int32)  # Of each insider, how far below it the nearest who asks is.
    for link in range(peer.size):
        x, hops = observer[link], delay[link] // 2 + 1
        if seen[link] == ASKED and delay[link] >= 0 and (after[x] < 0 or hops < after[x]):
            after[x] = hops
    node, positive = np.empty(2 * nodes, np.int32), np.empty(2 * nodes, np.bool_)
    sight_of, quiet_of, sizes = np.empty(2 * nodes), np.empty(2 * nodes), np.zeros(2 * nodes, np.int64)
    member, reach_of = np.empty(4096, np.int32), np.empty(4096)
    reach, pool = np.zeros(nodes), np.empty(nodes, np.int32)
    tests, used = 0, 0
    for w in range(nodes):
        if enemy[w] or distance[w] <= 0:
            continue
        sight = 1.0 - (1.0 - watched[w]) * (1.0 - caught)
        if result[w] == 0 and sight <= 0:
            continue
        size = _below(offsets, targets, enemy, distance, honest, result, w, reach, pool)
        timed = result[w] == ASKED and wait[w] >= 0
        far = distance[w] + wait[w] // 2
        quiet = 1.0 - recruits if result[w] == REFUSED else 1.0
        for link in range(peer.size):
            if seen[link] == FOLLOWED and reach[peer[link]] > 0:
                x = observer[link]
                if not timed or after[x] < 0 or distance[x] + after[x] == far:
                    quiet *= 1.0 - reach[peer[link]]
        if used + 2 * size > member.size:
            member = np.concatenate((member, np.empty(member.size + 2 * size, np.int32)))
            reach_of = np.concatenate((reach_of, np.empty(reach_of.size + 2 * size)))
        for nearer in range(2 if timed and wait[w] > 0 else 1):
            node[tests], quiet_of[tests] = w, quiet
            positive[tests] = result[w] in (ASKED, REFUSED) and nearer == 0
            sight_of[tests] = 1.0 if result[w] != 0 else sight
            for place in range(size):
                v = pool[place]
                if not timed or (distance[v] < far if nearer == 1 else distance[v] == far):
                    member[used], reach_of[used] = v, min(1.0, reach[v])
                    sizes[tests] += 1
                    used += 1
            tests += 1
        for place in range(size):
            reach[pool[place]] = 0.0
    return (
        node[:tests], positive[:tests], sight_of[:tests], quiet_of[:tests], sizes[:tests],
        member[:used], reach_of[:used],
    )  # fmt: skip


@jit
def _distances(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], present: NDArray[np.bool_], origin: int
) -> NDArray[np.int32]:
    distance, queue = np.full(present.size, -1, np.int32), np.empty(present.size, np.int32)
    distance[origin], queue[0], head, tail = 0, origin, 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for slot in range(offsets[u], offsets[u + 1]):
            v = targets[slot]
            if present[v] and distance[v] < 0:
                distance[v], queue[tail] = distance[u] + 1, v
                tail += 1
    return distance


@jit
def _preferred(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    observer: NDArray[np.int32],
    peer: NDArray[np.int32],
    seen: NDArray[np.int8],
    far: NDArray[np.int32],
    kept: bool,
) -> NDArray[np.bool_]:
    """For each link, which of the peer's neighbours it likes no better than the observer: that one, and where its order
    is kept all others that it could have chosen when it chose the observer."""
    better = np.zeros((peer.size, np.diff(offsets).max()), np.bool_)
    for link in range(peer.size):
        w, x = peer[link], observer[link]
        for place in range(offsets[w + 1] - offsets[w]):
            u = targets[offsets[w] + place]
            better[link, place] = u == x
            for epoch in range(len(far) if kept else 0):
                if seen[epoch, link] == ASKED and far[epoch, u] >= 0 and far[epoch, u] == far[epoch, w] - 1:
                    better[link, place] = True
    return better


@jit
def _chances(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    observer: NDArray[np.int32],
    peer: NDArray[np.int32],
    distance: NDArray[np.int32],
    better: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The probability that a node chooses an insider, if it chooses.

    The best of a is the best of b more as well with probability a / (a + b).
    """
    chance = np.zeros(distance.size)
    for link in range(peer.size):
        w, x = peer[link], observer[link]
        if distance[w] > 0 and distance[x] == distance[w] - 1:
            beaten, others = 0, 0
            for place in range(offsets[w + 1] - offsets[w]):
                if better[link, place]:
                    beaten += 1
                elif distance[targets[offsets[w] + place]] == distance[x]:
                    others += 1
            chance[w] = min(1.0, chance[w] + beaten / (beaten + others))
    return chance


@jit
def _nearer(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], enemy: NDArray[np.bool_], distance: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """How many honest and how many hostile parents a node may choose from."""
    honest, watched = np.zeros(enemy.size, np.int32), np.zeros(enemy.size, np.int32)
    for v in range(enemy.size):
        for slot in range(offsets[v], offsets[v + 1]):
            if distance[v] > 0 and distance[targets[slot]] == distance[v] - 1:
                if enemy[targets[slot]]:
                    watched[v] += 1
                else:
                    honest[v] += 1
    return honest, watched


@jit
def _below(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    enemy: NDArray[np.bool_],
    distance: NDArray[np.int32],
    parents: NDArray[np.int32],
    result: NDArray[np.int8],
    w: int,
    reach: NDArray[np.float64],
    pool: NDArray[np.int32],
) -> int:
    """From w outward: whose ways may lead through it, and how likely they do. Returns how many there are.

    Of so many `parents` each node has chosen one; who was seen to choose another is in no pool.
    """
    pool[0], reach[w], head, tail = w, 1.0, 0, 1
    while head < tail:
        u = pool[head]
        head += 1
        for slot in range(offsets[u], offsets[u + 1]):
            v = targets[slot]
            if distance[v] != distance[u] + 1 or enemy[v] or result[v] in (ASKED, RECRUITED):
                continue
            if reach[v] == 0:
                pool[tail] = v
                tail += 1
            reach[v] += reach[u] / parents[v]
    return tail


def infer_beliefs(tests: GroupTests, nodes: int, prior: float) -> NDArray[np.float64]:
    """By node, the log-odds that it asks; `prior` is the share of those who do."""
    return _beliefs(
        tests.positive,
        tests.sight,
        tests.quiet,
        tests.weight,
        tests.offsets,
        tests.member,
        tests.reach,
        nodes,
        prior,
        _ROUNDS,
    )


@jit
def _beliefs(
    positive: NDArray[np.bool_],
    sight: NDArray[np.float64],
    quiet: NDArray[np.float64],
    weight: NDArray[np.float64],
    offsets: NDArray[np.int64],
    member: NDArray[np.int32],
    reach: NDArray[np.float64],
    nodes: int,
    prior: float,
    rounds: int,
) -> NDArray[np.float64]:
    odds = log(prior / (1.0 - prior))
    told, belief = np.zeros(member.size), np.full(nodes, odds)
    idle = np.empty(member.size)
    for _ in range(rounds):
        after = np.full(nodes, odds)
        for test in range(positive.size):
            total = log(max(_TINY, quiet[test]))
            for at in range(offsets[test], offsets[test + 1]):
                others = belief[member[at]] - told[at]
                idle[at] = log1p(-min(_SURE, reach[at] / (1.0 + exp(-others))))
                total += idle[at]
            for at in range(offsets[test], offsets[test + 1]):
                rest = exp(total - idle[at])
                with_it, without = (1.0 - reach[at]) * rest, rest
                if positive[test]:
                    said = log((1.0 - with_it + _WRONG) / (1.0 - without + _WRONG))
                else:
                    missed = 1.0 - sight[test] + _WRONG
                    said = log((missed + sight[test] * with_it) / (missed + sight[test] * without))
                told[at] += _DAMPING * (weight[test] * said - told[at])
                after[member[at]] += told[at]
        belief = after
    return belief


_ROUNDS: Final = 12
_DAMPING: Final = 0.6
_WRONG: Final = 1e-3
"""The probability that a result is not what the model says."""
_SURE: Final = 1.0 - 1e-9
_TINY: Final = 1e-12

"""Group tests by a coalition: one test for each honest node w and epoch, and belief propagation over all tests.

A node is in the mesh if it subscribes itself, or if a subscriber below it has its path through it. So an observation of
w is a test (Dorfman 1943) of a pool: w itself with certainty, and every node whose path may lead through w, with the
probability that it does. Distances from the origin are known, and so are the possible parents of a node. Each parent is
equally likely. Where nodes keep their choices, a parent that was chosen before others is likelier than those, and than
third ones. Paths end at insiders: an insider sees which node subscribes with it, and knows its own parent.

Nothing is counted twice. A node that subscribed with an insider is in no other pool. A node that was silent to some
possible parents chose among the others, if any. An insider that subscribed with w is a known cause for w's membership
and explains away the other causes (`quiet`). Where choices are kept, a node that prefers an honest parent is silent to
an insider in fifty epochs for one reason, not for fifty: equal results of one node share the weight of one.

A test is positive if w subscribed with an insider, was named in a shell game, refused an invitation or sent one. The
last three can also be due to recruitment, with a probability that the coalition reads off its own members. A test is
negative with certainty if w accepted an invitation, and weakly if nothing was seen, by the probability that something
would have been. Where answers can be timed, the delay of w's answer tells how far below w the nearest subscriber is.
That gives two tests: of the nearer nodes, negative; and of the nodes at exactly that distance.

Inference: every test is a noisy OR. A pool is active unless each member is idle or uses another path, and nothing else
caused the result. Each test sends each member the log-likelihood ratio of the result with and without it, given the
current beliefs about the others. Each member sends each test the sum of the other messages. Pools share members in
loops, and paths are treated as independent where they join, so this is an approximation. A few damped rounds suffice;
the order of the scores, which is all that is used, hardly changes after them (Sejdinovic and Johnson 2010). Every
result may be wrong with a small probability, so no message is certain and contradictions are tolerated.
"""

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
    """T tests whose pools have K members in all."""

    epoch: NDArray[np.int32]
    """T: epoch of the test, in order."""
    node: NDArray[np.int32]
    """T: node that the pool lies below."""
    positive: NDArray[np.bool_]
    """T: result."""
    sight: NDArray[np.float64]
    """T: probability that the coalition notices an active pool; 1 for a positive result."""
    quiet: NDArray[np.float64]
    """T: probability that nothing but the pool caused the result."""
    weight: NDArray[np.float64]
    """T: weight of the test; below 1 where others give the same result for the same reason."""
    offsets: NDArray[np.int64]
    """T + 1: where each pool begins, and where the last one ends."""
    member: NDArray[np.int32]
    """K: node in the pool."""
    reach: NDArray[np.float64]
    """K: probability that this member's path leads through the node."""


def build_group_tests(graph: Graph, sights: LinkObservations, *, kept: bool = False) -> GroupTests:
    """The tests of all epochs. `kept` says that nodes keep the order in which they prefer their parents."""
    enemy = sights.coalition
    recruits, names = recruitment_rate(sights), find_named_members(sights)
    caught = naming_rate(sights, names)
    far = origin_distances(graph, sights)
    better = _find_preferred(graph.offsets, graph.targets, sights.observer, sights.peer, sights.seen, far, kept)
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
    """E x nodes: hops from the origin over the present nodes; -1 for nodes that no flood reaches."""
    floods = zip(sights.present, sights.origin.tolist(), strict=True)
    return np.array([_distances(graph.offsets, graph.targets, present, origin) for present, origin in floods])


def path_probabilities(
    graph: Graph, enemy: NDArray[np.bool_], distance: NDArray[np.int32], node: int
) -> NDArray[np.float64]:
    """The probability that the path of each node leads through `node`, and past no insider before."""
    honest, watched = _count_parents(graph.offsets, graph.targets, enemy, distance)
    reach, pool, nothing = np.zeros(graph.nodes), np.empty(graph.nodes, np.int32), np.zeros(graph.nodes, np.int8)
    _find_pool(graph.offsets, graph.targets, enemy, distance, honest + watched, nothing, node, reach, pool)
    return reach


def recruitment_rate(sights: LinkObservations) -> float:
    """The share of nodes outside a mesh that are recruited, as insiders outside the mesh observe it."""
    inside = _by_observer(sights, (sights.seen == ASKED) | (sights.seen == FOLLOWED))
    invited = _by_observer(sights, sights.seen == INVITED)
    outside = sights.coalition & ~inside
    return _share(invited, outside)


def naming_rate(sights: LinkObservations, names: NDArray[np.bool_]) -> float:
    """The share of a mesh that shell games name to insiders, as insiders inside the mesh observe it."""
    inside = _by_observer(sights, (sights.seen == ASKED) | (sights.seen == FOLLOWED))
    return _share(names, inside)


def infer_beliefs(tests: GroupTests, nodes: int, prior: float) -> NDArray[np.float64]:
    """The log-odds that it subscribes, by node; `prior` is the share of subscribing nodes."""
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


def _weights(node: NDArray[np.int32], positive: NDArray[np.bool_], sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where choices are kept, a node's results have one hidden cause in all epochs: equal results count as one."""
    kind = 3 * node.astype(np.int64) + np.where(positive, 0, np.where(sight == 1, 1, 2))
    _, place, count = np.unique(kind, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / count[place], np.float64)


def _share(found: NDArray[np.bool_], among: NDArray[np.bool_]) -> float:
    return int(np.count_nonzero(found & among)) / max(1, int(np.count_nonzero(among)))


def _by_observer(sights: LinkObservations, noticed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """E x nodes: the insiders that noticed something on any of their links."""
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
    """The tests of one epoch: the columns of `GroupTests`, with the sizes of the pools in place of the offsets."""
    nodes = enemy.size
    honest, _ = _count_parents(offsets, targets, enemy, distance)
    watched = _choice_probabilities(offsets, targets, observer, peer, distance, better)
    result, wait = names.astype(np.int8) * REFUSED, np.full(nodes, -1, np.int32)
    for link in range(peer.size):
        w, sight = peer[link], seen[link]
        if sight in (ASKED, RECRUITED):
            result[w], wait[w] = sight, delay[link]
        elif sight in (REFUSED, INVITED) and result[w] not in (ASKED, RECRUITED):
            result[w] = REFUSED
    after = np.full(nodes, -1, np.int32)  # By insider, hops down to the nearest subscriber below it.
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
        size = _find_pool(offsets, targets, enemy, distance, honest, result, w, reach, pool)
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
def _find_preferred(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    observer: NDArray[np.int32],
    peer: NDArray[np.int32],
    seen: NDArray[np.int8],
    far: NDArray[np.int32],
    kept: bool,
) -> NDArray[np.bool_]:
    """For each link, the peer's neighbours that it likes no better than the observer: the observer itself, and, where
    the order is kept, every neighbour that it could have chosen when it chose the observer."""
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
def _choice_probabilities(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    observer: NDArray[np.int32],
    peer: NDArray[np.int32],
    distance: NDArray[np.int32],
    better: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The probability that a node chooses an insider, if it chooses.

    The best of a candidates is also the best of a + b candidates with probability a / (a + b).
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
def _count_parents(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], enemy: NDArray[np.bool_], distance: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The number of honest and of hostile parents that a node may choose from."""
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
def _find_pool(
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
    """From w outward: the nodes whose path may lead through w, and the probability. Returns their number.

    Each node has chosen one of its `parents`. A node that was seen to choose another parent is in no pool.
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
"""Probability that a result differs from what the model says."""
_SURE: Final = 1.0 - 1e-9
_TINY: Final = 1e-12

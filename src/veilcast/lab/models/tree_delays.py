"""How long subscribers of trees wait: every node is a queue, every stream a circuit through an anonymous network.

A node does one thing at a time, in the order of arrival. Opening a layer, receiving a message, and forwarding one take
their measured times. A stream between two nodes goes through a number of relays, which are hosts like the nodes, drawn
for each stream; a record takes the time of all its legs. Nothing is lost and no node is away.

Instructions go down the tree that they make (`paper`), or through groups that are drawn separately, spread over some
time (`hardened`). The subscription is active when the last node has its instruction. A publication goes to its origin,
which sends a copy to its parent in each tree, and so on to the root. The root is the subscriber, or forwards to a chain
of guards.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import GOLDEN, mix_bits
from veilcast.lab.models.tree import Nodes, SpanningTrees, node_in, parent_in


class CircuitNetwork(NamedTuple):
    one_way_us: NDArray[np.int64]
    """One-way times from host to host; the first hosts are the nodes."""
    circuit: int
    """Number of relays between two nodes."""
    seed: np.uint64


class TreeWork(NamedTuple):
    """Work in microseconds of one core."""

    wrap: int
    """A layer of a bundle, for the subscriber."""
    unwrap: int
    """A layer, for its node."""
    match: int
    """A publication, for its origin."""
    take: int
    """A publication, for every other node."""
    hand: int
    """Each record that is sent."""


class InstallGroups(NamedTuple):
    """The groups by which hardened instructions travel."""

    order: SpanningTrees
    """The order of nodes: a group is a run of consecutive places."""
    size: int
    fan: int
    first_us: NDArray[np.int64]
    """Trees x groups, the chain's guards at the end: when each bundle leaves."""


def install_times(
    net: CircuitNetwork,
    work: TreeWork,
    trees: SpanningTrees,
    readers: Nodes,
    chains: Nodes,
    groups: InstallGroups | None,
) -> Nodes:
    """For each tree, when its last node has its instruction, if all subscribe at once. Without groups, instructions go
    down the tree itself. `chains` are readers x guards."""
    if groups is None:
        return np.asarray(_down_trees(net, work, trees, readers), np.int64)
    return np.asarray(_through_groups(net, work, groups, readers, chains), np.int64)


def delivery_times(
    net: CircuitNetwork,
    work: TreeWork,
    trees: SpanningTrees,
    readers: Nodes,
    chains: Nodes,
    origin: Nodes,
    sender: Nodes,
) -> Nodes:
    """Publications x trees: when each reader has each publication, if all are sent at once to these origins."""
    return np.asarray(_delivery_times(net, work, trees, readers, chains, origin, sender), np.int64)


def circuit_time_us(net: CircuitNetwork, u: int, v: int) -> int:
    """Time of a record on the first stream from u to v."""
    return int(_takes(net, u, v, 0))


@jit
def _takes(net: CircuitNetwork, u: int, v: int, stream: int) -> int:
    """Time of a record on a stream from u to v. Streams of one number between the same two nodes are one."""
    hosts, bits = len(net.one_way_us), mix_bits(net.seed + np.uint64((stream * len(net.one_way_us) + u) * 65536 + v))
    total, here = 0, u
    for _ in range(net.circuit):
        bits = mix_bits(bits + GOLDEN)
        relay: int = np.int64(bits % np.uint64(hosts))  # type: ignore[assignment]
        total += net.one_way_us[here, relay]
        here = relay
    return total + net.one_way_us[here, v]  # type: ignore[no-any-return]


@jit
def _down_trees(net: CircuitNetwork, work: TreeWork, trees: SpanningTrees, readers: Nodes) -> Nodes:
    n, b, many = trees.places.nodes, trees.branching, readers.size
    free, stands = np.zeros(n, np.int64), np.zeros(many, np.int64)
    queue = [(0, tree, readers[tree], tree, 0) for tree in range(many)]
    count = many
    while len(queue):
        now, _, node, tree, place = heappop(queue)
        done = max(now, free[node]) + (work.unwrap if place else work.wrap * (n - 1))
        if place:
            stands[tree] = max(stands[tree], done)
        for child in range(place * b + 1, min(place * b + b + 1, n)):
            below = node_in(trees, tree, child)
            done += work.hand
            count += 1
            heappush(queue, (done + _takes(net, node, below, 0), count, below, tree, child))
        free[node] = done
    return stands


@jit
def _through_groups(net: CircuitNetwork, work: TreeWork, groups: InstallGroups, readers: Nodes, chains: Nodes) -> Nodes:
    n, many, guards = groups.order.places.nodes, readers.size, chains.shape[1]
    free, stands = np.zeros(n, np.int64), np.zeros(many, np.int64)
    heads = (n + groups.size - 1) // groups.size
    # A bundle that leaves the subscriber is at place -1 - its number, those of guards after those of groups. The queue
    # begins with a dummy entry, so that numba knows its type.
    queue, count = [(0, 0, readers[0], 0, 0)], 0
    queue.pop()
    for tree in range(many):
        free[readers[tree]] += work.wrap * (n + guards)
        for number in range(heads + guards):
            count += 1
            heappush(queue, (groups.first_us[tree, number], count, readers[tree], tree, -1 - number))
    while len(queue):
        now, _, node, tree, place = heappop(queue)
        done = max(now, free[node])
        if place < 0:
            number = -1 - place
            to = node_in(groups.order, tree, number * groups.size) if number < heads else chains[tree, number - heads]
            done += work.hand
            count += 1
            at = number * groups.size if number < heads else n
            heappush(queue, (done + _takes(net, node, to, count), count, to, tree, at))
        else:
            done += work.unwrap
            stands[tree] = max(stands[tree], done)
            base = place - place % groups.size
            first = base + (place - base) * groups.fan + 1
            for child in range(first, min(first + groups.fan, base + groups.size, n)):
                below = node_in(groups.order, tree, child)
                done += work.hand
                count += 1
                heappush(queue, (done + _takes(net, node, below, 0), count, below, tree, child))
        free[node] = done
    return stands


@jit
def _delivery_times(
    net: CircuitNetwork,
    work: TreeWork,
    trees: SpanningTrees,
    readers: Nodes,
    chains: Nodes,
    origin: Nodes,
    sender: Nodes,
) -> Nodes:
    n, many, guards = trees.places.nodes, readers.size, chains.shape[1]
    free, has = np.zeros(n, np.int64), np.zeros((origin.size, many), np.int64)
    # The tree of a publication at its origin is -1; a copy behind the root counts the guards that it passed. The queue
    # begins with a dummy entry, so that numba knows its type.
    queue = [(0, 0, readers[0], -1, 0, 0)]
    queue.pop()
    for number in range(origin.size):
        free[sender[number]] += work.match
        sent = free[sender[number]] + work.hand
        heappush(
            queue,
            (sent + _takes(net, sender[number], origin[number], 1 + number), number, origin[number], -1, 0, number),
        )
    count = origin.size
    while len(queue):
        now, _, node, tree, passed, number = heappop(queue)
        done = max(now, free[node]) + (work.match if tree < 0 else work.take)
        if tree >= 0 and node == readers[tree] and passed == guards + (guards > 0):
            has[number, tree] = done
            free[node] = done
            continue
        for each in range(many if tree < 0 else 1):
            of = each if tree < 0 else tree
            further = passed
            to = parent_in(trees, of, node) if not passed else -1
            if to < 0:
                if not guards:
                    # The reader is the origin.
                    has[number, of] = done
                    continue
                further += 1
                to = chains[of, further - 1] if further <= guards else readers[of]
            done += work.hand
            count += 1
            heappush(queue, (done + _takes(net, node, to, 0), count, to, of, further, number))
        free[node] = done
    return has

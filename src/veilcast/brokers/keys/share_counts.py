"""Number of shares and messages that the transfer of a key takes (P4, "Solution Analysis").

Arithmetic on integers of any size: 3^40 does not fit into a signed 64-bit integer. `p` disjoint paths, `sizes` the
replicas of each hop, `faulty` the Byzantine replicas of each hop.

The paper says that at least p r^h - p (r - f)^h shares arrive. That is the number of shares that met a Byzantine
broker: with r = 3, f = 1, h = 1 it is 1, below the threshold of 2. The shares that arrive for certain are those that
met only honest brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from veilcast.brokers.keys.scheme import majority, max_faulty
from veilcast.errors import LocalError


def shares_received(sizes: Sequence[int], paths: int = 1) -> int:
    """Upper bound: p r^h. This many reach the subscriber if no broker drops any."""
    return _check_paths(paths) * prod(sizes)


def shares_for_certain(sizes: Sequence[int], faulty: Sequence[int], paths: int = 1) -> int:
    """Lower bound: p (r - f)^h."""
    return _check_paths(paths) * prod(_honest(sizes, faulty))


def shares_for_certain_as_printed(sizes: Sequence[int], faulty: Sequence[int], paths: int = 1) -> int:
    """The paper's lower bound, p r^h - p (r - f)^h, which is not one."""
    return shares_received(sizes, paths) - shares_for_certain(sizes, faulty, paths)


def shares_needed(sizes: Sequence[int]) -> int:
    """Shares that reconstruct the key if they are the right ones: the product of the thresholds."""
    return prod(map(majority, sizes))


def shares_sent(sizes: Sequence[int], paths: int = 1) -> int:
    """Over all hops: r + r^2 + ... + r^h, the count that matches the paper's Figure 9."""
    products: Iterator[int] = accumulate(sizes, mul)
    return _check_paths(paths) * sum(products)


def messages_redistributed(sizes: Sequence[int]) -> int:
    """Upper bound without Byzantine replicas: r from the publisher, r^2 dealt shares and r^2 rolls per hop, r to the
    subscriber."""
    return sizes[0] + sum(old * new + new * new for old, new in pairwise(sizes)) + sizes[-1]


def messages_redistributed_at_worst(sizes: Sequence[int]) -> int:
    """Upper bound of one attempt, whatever minorities do: all rounds of both broadcasts, and every possible dispute,
    shown to all.

    A dealing that counts has a majority of replicas that do not dispute it. All statements relayed in a round are one
    message.
    """
    hops = 0
    for old, new in pairwise(sizes):
        broadcast = new * (new - 1) * (max_faulty(new) + 1)
        hops += old * new + 2 * broadcast + old * (new - majority(new)) * new
    return sizes[0] + hops + sizes[-1]


def _honest(sizes: Sequence[int], faulty: Sequence[int]) -> list[int]:
    if any(not 0 <= bad <= size for size, bad in zip(sizes, faulty, strict=True)):
        raise LocalError("a node has no more Byzantine replicas than replicas")
    return [size - bad for size, bad in zip(sizes, faulty, strict=True)]


def _check_paths(paths: int) -> int:
    if paths < 1:
        raise LocalError("there is at least one path")
    return paths

"""Random graphs for overlays."""

from __future__ import annotations

from random import Random

from veilcast.errors import ConfigError


def watts_strogatz(n: int, k: int, p: float, rng: Random) -> list[tuple[int, int]]:
    """A small world: a ring where each node knows its k nearest, and each edge is rewired with probability p.

    Edges are (u, v) with u < v, in order. An edge of a node that already knows all others stays.
    """
    check_small_world(n, k, p)
    # Neighbours as keys of a dict: membership in constant time, and an order that does not depend on hashes.
    known: list[dict[int, None]] = [{} for _ in range(n)]
    for step in range(1, k // 2 + 1):
        for u in range(n):
            v = (u + step) % n
            known[u][v] = known[v][u] = None
    for step in range(1, k // 2 + 1):
        for u in range(n):
            v = (u + step) % n
            if rng.random() >= p or v not in known[u] or len(known[u]) == n - 1:
                continue
            w = rng.randrange(n)
            while w == u or w in known[u]:
                w = rng.randrange(n)
            del known[u][v], known[v][u]
            known[u][w] = known[w][u] = None
    return [(u, v) for u in range(n) for v in sorted(known[u]) if u < v]


def is_connected(n: int, edges: list[tuple[int, int]]) -> bool:
    """True if every node can be reached from every other."""
    known: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        known[u].append(v)
        known[v].append(u)
    reached, border = {0: None}, [0]
    while border:
        border = [v for v in dict.fromkeys(v for u in border for v in known[u]) if v not in reached]
        reached |= dict.fromkeys(border)
    return len(reached) == n


def check_small_world(n: int, k: int, p: float) -> None:
    if k < 2 or k % 2 or k >= n:
        raise ConfigError(f"neighbours must be even, at least 2 and less than the {n} nodes, not {k}")
    if not 0 <= p <= 1:
        raise ConfigError(f"rewire must be a probability, not {p}")

"""Placement: how many replicas each virtual node gets (P4, "Replica Placement Framework").

Shares are computed with exact fractions. The paper's framework has three phases:

1. A path's priority is its length times its share of all failures times the administrator's weight. Replicas are
   allotted to paths in proportion to it.
2. Each path distributes its replicas to its nodes by their share of the path's failures.
3. A path with more than a cap returns some, from the node that fails least.

Proportions are rounded by largest remainders. A node on several paths gets a pack from each. In the paper's variation
it takes only one (here the largest), and the rest goes to the nodes that have least.

The purpose is an honest majority at every node of a path: a node without one reveals or stops everything. A node of
even size is worse than the odd one below it. So the framework, which moves single replicas, wastes many, and with its
variation replicas can do more harm than good. `greedy_pair_plan` moves two at a time, to the node where they raise the
expected number of sound paths most. It knows the failure probabilities of brokers, as all three phases do by their
counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb, prod
from typing import Final

import msgspec

from veilcast.brokers.keys.scheme import check_hardened, max_faulty
from veilcast.errors import ConfigError, LocalError


class OverlayPath(msgspec.Struct, frozen=True):
    """The virtual nodes from a publisher to a subscriber, and the weight of the path."""

    name: str
    nodes: tuple[str, ...]
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            raise LocalError(f"path {self.name!r} must have nodes, and none twice")
        if self.weight < 0:
            raise LocalError(f"the weight of path {self.name!r} is negative")


class PlacementPlan(msgspec.Struct, frozen=True):
    """Replicas of each node, with its first broker; unused replicas; and unprotected paths.

    `packs` says what each path gave each of its nodes, in plans that have packs.
    """

    sizes: dict[str, int]
    unused: int
    unprotected: tuple[str, ...]
    packs: dict[str, dict[str, int]] = {}

    def check_hardened(self) -> None:
        """`ConfigError` with the reason, unless every node of the plan is sound."""
        for node, size in self.sizes.items():
            check_hardened(size, f"virtual node {node!r} of the plan")


def three_phase_plan(
    paths: Sequence[OverlayPath],
    failures: Mapping[str, int],
    replicas: int,
    *,
    cap: int | None = None,
    once: bool = False,
    available: int | None = None,
) -> PlacementPlan:
    """The paper's plan for this number of replicas. `once` is its variation, `cap` the most that one path may have."""
    _check(paths, failures, replicas, available)
    allotted = largest_remainder(path_priorities(paths, failures), replicas)
    packs = {
        path.name: _distribute_to_nodes(path, failures, count) for path, count in zip(paths, allotted, strict=True)
    }
    if cap is not None:
        packs = {path.name: _apply_cap(path, failures, packs[path.name], cap) for path in paths}
    nodes = _nodes(paths)
    if once:
        taken = {node: max((pack.get(node, 0) for pack in packs.values()), default=0) for node in nodes}
        given_back = sum(sum(pack.values()) for pack in packs.values()) - sum(taken.values())
        for _ in range(given_back):
            taken[min(nodes, key=lambda node: (taken[node], -failures.get(node, 0)))] += 1
    else:
        taken = {node: sum(pack.get(node, 0) for pack in packs.values()) for node in nodes}
    return _plan(paths, {node: 1 + count for node, count in taken.items()}, replicas - sum(taken.values()), packs)


def greedy_pair_plan(
    paths: Sequence[OverlayPath],
    risks: Mapping[str, float],
    replicas: int,
    *,
    cap: int | None = None,
    available: int | None = None,
    minimum: int | Mapping[str, int] = 1,
) -> PlacementPlan:
    """Pairs of replicas, each where it raises the weighted probability of sound paths most, as long as one does.

    `risks` are the probabilities that a broker of each node fails; 0 for a node that is not listed. Every node starts
    with `minimum` replicas, or with its own entry in `minimum`, an odd number.
    """
    _check(paths, {}, replicas, available)
    nodes = _nodes(paths)
    sizes = dict.fromkeys(nodes, minimum) if isinstance(minimum, int) else {node: minimum[node] for node in nodes}
    if any(size < 1 or size % 2 == 0 for size in sizes.values()):
        raise LocalError("pairs are added to an odd number of replicas")
    if any(not 0 <= risks.get(node, 0.0) <= 1 for node in nodes):
        raise LocalError("the risk of a node is a probability from 0 to 1")
    paths_through: dict[str, list[OverlayPath]] = {
        node: [path for path in paths if node in path.nodes] for node in nodes
    }
    added = {path.name: 0 for path in paths}
    before = {node: honest_majority_probability(sizes[node], risks.get(node, 0.0)) for node in nodes}
    sound = {path.name: float(path.weight) * prod(before[node] for node in path.nodes) for path in paths}
    # A pair at v multiplies the probability of all paths through v by the same factor, so their sum is enough.
    mass = {node: sum(sound[path.name] for path in paths_through[node]) for node in nodes}
    remaining = replicas
    while remaining >= 2:
        gains = {
            node: mass[node] * (_factor(sizes[node], risks.get(node, 0.0)) - 1)
            for node in nodes
            if cap is None or all(added[path.name] + 2 <= cap for path in paths_through[node])
        }
        best = max(gains, key=lambda node: gains[node], default=None)
        if best is None or gains[best] <= 0:
            break
        factor = _factor(sizes[best], risks.get(best, 0.0))
        for path in paths_through[best]:
            more = sound[path.name] * (factor - 1)
            sound[path.name] += more
            added[path.name] += 2
            for node in path.nodes:
                mass[node] += more
        sizes[best] += 2
        remaining -= 2
    return _plan(paths, sizes, remaining)


def path_priorities(paths: Sequence[OverlayPath], failures: Mapping[str, int]) -> list[Fraction]:
    """For each path: its length, times its share of all failures on all paths, times its weight."""
    on_path = [sum(failures.get(node, 0) for node in path.nodes) for path in paths]
    total = sum(on_path) or 1
    return [len(path.nodes) * Fraction(own, total) * path.weight for path, own in zip(paths, on_path, strict=True)]


def largest_remainder(weights: Sequence[Fraction | int], seats: int) -> list[int]:
    """Distribute the seats in proportion to the weights: whole parts, then one each by the largest remainders; none for
    weight zero."""
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    quotas = [Fraction(weight * seats, total) for weight in weights]
    counts = [quota.numerator // quota.denominator for quota in quotas]
    by_rest = sorted(range(len(weights)), key=lambda at: counts[at] - quotas[at])
    for at in by_rest[: seats - sum(counts)]:
        counts[at] += 1
    return counts


@lru_cache(maxsize=4096)
def honest_majority_probability(size: int, risk: float) -> float:
    """The probability that fewer than half of a node's replicas fail, each independently with this risk."""
    return sum(comb(size, bad) * risk**bad * (1 - risk) ** (size - bad) for bad in range(max_faulty(size) + 1))


def soundness(paths: Sequence[OverlayPath], sizes: Mapping[str, int], risks: Mapping[str, float]) -> float:
    """The mean probability, by weight, that every node of a path has an honest majority."""
    total = sum(float(path.weight) for path in paths)
    sound = sum(
        float(path.weight) * prod(honest_majority_probability(sizes.get(n, 1), risks.get(n, 0.0)) for n in path.nodes)
        for path in paths
    )
    return sound / total


def estimate_risk(failures: int, observed: int) -> float:
    """The probability that a broker fails, from the number of failures and observations (Jeffreys)."""
    if not 0 <= failures <= observed:
        raise LocalError("a broker fails as often as it was observed at most")
    return (failures + 0.5) / (observed + 1)


def unprotected_paths(paths: Sequence[OverlayPath], sizes: Mapping[str, int]) -> list[str]:
    """Paths with a node of one or two replicas, where nothing can be shared."""
    return [path.name for path in paths if any(sizes.get(node, 1) < _SHARING_MIN for node in path.nodes)]


def check_available(sizes: Mapping[str, int], now: Mapping[str, int], spare: int) -> None:
    """`ConfigError` if a plan needs more replicas than the nodes give up plus the spare ones."""
    wanted, have = sum(sizes.values()), sum(now.get(node, 1) for node in sizes)
    if wanted > have + spare:
        raise ConfigError(f"the plan asks for {wanted - have} more replicas, and {spare} are spare")


def _distribute_to_nodes(path: OverlayPath, failures: Mapping[str, int], count: int) -> dict[str, int]:
    """The second phase, for one path."""
    counts = largest_remainder([failures.get(node, 0) for node in path.nodes], count)
    return {node: each for node, each in zip(path.nodes, counts, strict=True) if each}


def _apply_cap(path: OverlayPath, failures: Mapping[str, int], pack: Mapping[str, int], cap: int) -> dict[str, int]:
    """The third phase, for one path: one replica at a time from the node that fails least, the first of several."""
    remaining = dict(pack)
    while sum(remaining.values()) > cap:
        least = min((node for node in path.nodes if remaining.get(node)), key=lambda node: failures.get(node, 0))
        remaining[least] -= 1
        if not remaining[least]:
            del remaining[least]
    return remaining


def _factor(size: int, risk: float) -> float:
    """The factor by which two more replicas raise the probability of every path through the node."""
    before = honest_majority_probability(size, risk)
    return honest_majority_probability(size + 2, risk) / before if before else 1.0


def _plan(
    paths: Sequence[OverlayPath], sizes: dict[str, int], unused: int, packs: dict[str, dict[str, int]] | None = None
) -> PlacementPlan:
    return PlacementPlan(sizes, unused, tuple(unprotected_paths(paths, sizes)), packs or {})


def _nodes(paths: Sequence[OverlayPath]) -> list[str]:
    return list(dict.fromkeys(node for path in paths for node in path.nodes))


def _check(paths: Sequence[OverlayPath], failures: Mapping[str, int], replicas: int, available: int | None) -> None:
    if len({path.name for path in paths}) != len(paths):
        raise LocalError("two paths have one name")
    if replicas < 0 or any(count < 0 for count in failures.values()):
        raise LocalError("numbers of replicas and failures are not negative")
    if available is not None and replicas > available:
        raise ConfigError(f"the plan asks for {replicas} replicas, and there are {available}")


_SHARING_MIN: Final = 3

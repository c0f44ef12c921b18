"""From the reports of brokers on one another to a placement plan, and from the plan to the next orders.

The confirmed failures give each replica a risk, and `placement` makes a plan of the risks, the paper's or ours.

1. Property: no minority of a node slanders a replica.
   Reason: a failure counts as often as enough replicas of one node report it that one of them is honest: the (f + 1)-th
   largest count.

2. Property: Byzantine replicas do not attract replicas to a node by failing, nor drive them away.
   Reason: a node's risk is the median of its replicas' risks: while fewer than half are Byzantine, some honest replica
   fails no less often and one no more often. Replicas proven Byzantine do not count in it: they are to be replaced, and
   among the others the Byzantine ones are a smaller part still.

3. Property: Byzantine replicas do not come to own a node by never failing.
   Reason: a `hardened` plan allots only spare replicas. A node gives up replicas only if the operator says so, one pair
   per plan, and the leaving replicas are drawn by lot with a secret of the operator. If the most failing ones left,
   replicas that never fail would stay until they own the node.

A plan is carried out in steps, one node at a time, each an overlay for the operator to sign:

1. Nodes give up replicas, those proven Byzantine first. A replica that has left is spare, and can join elsewhere when
   it is started again.
2. Replicas proven Byzantine are replaced; spare replicas are reserved for this. They are never used again.
3. The other nodes grow.

The operator keeps the list of proven replicas: where a node grows, more replicas must report a Byzantine one than have
seen it misbehave, and it would be cleared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from statistics import median_low
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.keys.scheme import max_faulty
from veilcast.brokers.operations.placement import (
    OverlayPath,
    PlacementPlan,
    check_available,
    estimate_risk,
    greedy_pair_plan,
    three_phase_plan,
    unprotected_paths,
)
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica
from veilcast.brokers.topology import OverlayTree
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LocalError

PlanMethod: TypeAlias = Literal["pairs", "phases", "phases-once"]
"""`phases` are the paper's three, `phases-once` their variation."""
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class FaultCount(msgspec.Struct, frozen=True):
    """The replica with this index, under this version of the node's scheme, failed or misbehaved `count` times."""

    node: str
    index: Count
    scheme: Count
    count: Count
    proof: bool


class ReplicaReport(msgspec.Struct, frozen=True):
    """The report of one replica: its fault counts, the number of publications that it has completed, and the time."""

    node: str
    index: Count
    marks: tuple[FaultCount, ...] = ()
    observed: Count = 0
    at_us: Count = 0


class RedeployStep(msgspec.Struct, frozen=True):
    """An overlay to sign next, and its changes."""

    overlay: BrokerOverlay
    node: str
    joining: tuple[Replica, ...]
    leaving: tuple[Replica, ...]


class ReplicaFindings(msgspec.Struct, frozen=True):
    """For each replica, by its key: its confirmed failures and whether it is proven Byzantine; and the number of
    observed publications."""

    failures: dict[bytes, int]
    faulty: tuple[bytes, ...]
    observed: int

    def node_failures(self, node: NodeEntry) -> int:
        return sum(self.failures.get(replica.key, 0) for replica in node.replicas)

    def node_risk(self, node: NodeEntry) -> float:
        """The probability that a broker there fails which is not proven Byzantine: the median; of two in the middle,
        the lower."""
        counts = [self.failures.get(replica.key, 0) for replica in node.replicas if replica.key not in self.faulty]
        failures = median_low(counts) if counts else 0
        return min(RISK_MAX, estimate_risk(failures, max(failures, self.observed, OBSERVED_MIN)))


def evaluate_reports(
    overlay: BrokerOverlay, reports: Iterable[ReplicaReport], known: Collection[bytes] = ()
) -> ReplicaFindings:
    """The confirmed part of all reports, with the replicas of the `known` keys proven Byzantine. A replica without a
    report counts as failed once more.

    Counts under an older scheme belong to a replica that has left, or to another one, and are ignored: brokers report a
    replica that stays under its current id.
    """
    by_replica = {(each.node, each.index): each for each in reports}
    failures: Counter[bytes] = Counter()
    faulty: dict[bytes, None] = {}
    for target in overlay.nodes:
        for index, replica in enumerate(target.replicas, 1):
            failed = proven = 0
            for node in overlay.nodes:
                counts = [
                    _count_reports(by_replica.get((node.name, at)), target, index)
                    for at in range(1, len(node.replicas) + 1)
                ]
                failed = max(failed, _confirmed_count([count for count, _ in counts]))
                proven = max(proven, _confirmed_count([count for _, count in counts]))
            failures[replica.key] += failed + ((target.name, index) not in by_replica)
            if proven or replica.key in known:
                faulty[replica.key] = None
    observed = sorted(each.observed for each in by_replica.values())
    return ReplicaFindings(dict(failures), tuple(faulty), observed[len(observed) // 2] if observed else 0)


def overlay_paths(
    overlay: BrokerOverlay, pairs: Mapping[tuple[str, str], int | Fraction] | None = None
) -> list[OverlayPath]:
    """The paths between these pairs of edge nodes, by their weights; without `pairs`, all pairs of nodes with equal
    weights."""
    topology = OverlayTree.build({node.name: len(node.replicas) for node in overlay.nodes}, overlay.links)
    if pairs is None:
        names = list(topology.sizes)
        pairs = dict.fromkeys(combinations(names, 2), 1) if len(names) > 1 else {(names[0], names[0]): 1}
    return [
        OverlayPath(f"{one} - {other}", topology.path(one, other), Fraction(weight))
        for (one, other), weight in pairs.items()
    ]


def make_plan(
    overlay: BrokerOverlay,
    findings: ReplicaFindings,
    spare: int,
    *,
    profile: Profile,
    paths: Sequence[OverlayPath] | None = None,
    method: PlanMethod = "pairs",
    cap: int | None = None,
    replicas: int | None = None,
    move: bool = False,
) -> PlacementPlan:
    """Where all replicas should be, or `replicas` of them beyond those that each node keeps.

    In `hardened` a node keeps all its replicas, or with `move` all but a pair; in `paper`, one. `ConfigError` if more
    replicas are needed than exist, or for a plan of the paper that `hardened` cannot carry out. The sizes cover all
    nodes, also those on no path.
    """
    if move and profile != "hardened":
        raise ConfigError("plans for `paper` move replicas in any case; `move` is for `hardened`")
    paths = overlay_paths(overlay) if paths is None else paths
    kept = {node.name: _replicas_kept(node, move=move) if profile == "hardened" else 1 for node in overlay.nodes}
    minimum = kept if method == "pairs" else dict.fromkeys(kept, 1)
    free = max(0, spare - len(findings.faulty))
    available = sum(len(node.replicas) for node in overlay.nodes) + free - sum(minimum.values())
    if available < 0:
        raise ConfigError(f"{len(overlay.nodes)} virtual nodes need {-available} more replicas than there are")
    wanted = available if replicas is None else replicas
    if wanted > available:
        raise ConfigError(
            f"the plan asks for {wanted} replicas besides those that nodes keep, and there are {available}"
        )
    if method == "pairs":
        risks = {node.name: findings.node_risk(node) for node in overlay.nodes}
        made = greedy_pair_plan(paths, risks, wanted, cap=cap, available=available, minimum=minimum)
    else:
        failures = {node.name: findings.node_failures(node) for node in overlay.nodes}
        made = three_phase_plan(paths, failures, wanted, cap=cap, once=method == "phases-once", available=available)
    sizes = {name: made.sizes.get(name, keeps) for name, keeps in minimum.items()}
    made = msgspec.structs.replace(made, sizes=sizes, unprotected=tuple(unprotected_paths(paths, sizes)))
    if profile == "hardened":
        try:
            made.check_hardened()
            _check_kept(sizes, kept)
        except ConfigError as error:
            hint = "" if method == "pairs" else "; such plans are for `paper`, and `pairs` for both profiles"
            raise ConfigError(f"{error}{hint}") from error
    return made


def plan_steps(
    overlay: BrokerOverlay, made: PlacementPlan, spares: Sequence[Replica], findings: ReplicaFindings, *, lot: Secret
) -> list[RedeployStep]:
    """The overlays to sign, in order; none if the plan is already in place. `ConfigError` if there are too few
    replicas.

    `lot` is a secret of the operator: with it, an adversary could tell which replica will leave a node, and make the
    node shrink or not.
    """
    now = {node.name: len(node.replicas) for node in overlay.nodes}
    if made.sizes.keys() != now.keys():
        raise LocalError("a plan for another overlay")
    keys = [replica.key for node in overlay.nodes for replica in node.replicas]
    if len({*keys, *(replica.key for replica in spares)}) != len(keys) + len(spares):
        raise ConfigError("a spare replica stands in the overlay already, or is named twice")
    check_available(made.sizes, now, len(spares))
    return _StepPlanner(overlay, spares, findings, lot).steps(made.sizes)


class _StepPlanner:
    """An overlay on its way from step to step."""

    def __init__(
        self, overlay: BrokerOverlay, spares: Sequence[Replica], findings: ReplicaFindings, lot: Secret
    ) -> None:
        self._overlay, self._findings = overlay, findings
        self._lot = derive(lot, b"vc/leave-by-lot", overlay.version.to_bytes(8, "big"))
        self._spares = list(spares)
        self._steps: list[RedeployStep] = []

    def steps(self, sizes: Mapping[str, int]) -> list[RedeployStep]:
        for node in self._overlay.nodes:
            if len(node.replicas) > sizes[node.name]:
                self._change(node, sizes[node.name])
        growth = sum(max(0, sizes[node.name] - len(node.replicas)) for node in self._overlay.nodes)
        for node in self._overlay.nodes:
            faulty = [replica for replica in node.replicas if replica.key in self._findings.faulty]
            if faulty and len(self._spares) > growth:
                self._change(node, len(node.replicas), faulty[: len(self._spares) - growth])
        for node in self._overlay.nodes:
            if len(node.replicas) < sizes[node.name]:
                self._change(node, sizes[node.name])
        return self._steps

    def _change(self, node: NodeEntry, size: int, out: Sequence[Replica] = ()) -> None:
        """Bring the node to this size: those in `out` leave, then replicas proven Byzantine, then others by lot; spare
        ones join in their order."""
        drawn = sorted(
            (replica for replica in node.replicas if replica not in out),
            key=lambda replica: (replica.key in self._findings.faulty, self._draw(node, replica)),
        )
        stay = drawn[:size]
        if size - len(stay) > len(self._spares):
            raise ConfigError(f"{node.name!r} needs {size - len(stay)} replicas, and {len(self._spares)} are spare")
        leave = [replica for replica in node.replicas if replica not in stay]
        joining, self._spares = self._spares[: size - len(stay)], self._spares[size - len(stay) :]
        self._spares += [replica for replica in leave if replica.key not in self._findings.faulty]
        replicas = (*(replica for replica in node.replicas if replica in stay), *joining)
        changed = NodeEntry(node.name, node.version + 1, replicas)
        nodes = tuple(changed if each.name == node.name else each for each in self._overlay.nodes)
        self._overlay = msgspec.structs.replace(self._overlay, version=self._overlay.version + 1, nodes=nodes)
        self._steps.append(RedeployStep(self._overlay, node.name, tuple(joining), tuple(leave)))

    def _draw(self, node: NodeEntry, replica: Replica) -> bytes:
        return derive(self._lot, b"vc/leave-by-lot", node.name.encode(), replica.key).reveal()


def _replicas_kept(node: NodeEntry, *, move: bool) -> int:
    return max(HARDENED_MIN, len(node.replicas) - (2 if move else 0))


def _check_kept(sizes: Mapping[str, int], kept: Mapping[str, int]) -> None:
    for name, minimum in kept.items():
        if sizes[name] < minimum:
            raise ConfigError(f"virtual node {name!r} of the plan has {sizes[name]} of the {minimum} replicas it keeps")


def _count_reports(reports: ReplicaReport | None, target: NodeEntry, index: int) -> tuple[int, int]:
    """How often this report counts that replica: in total, and with a proof."""
    by_proof: dict[bool, int] = defaultdict(int)
    for fault in reports.marks if reports is not None else ():
        if (fault.node, fault.scheme, fault.index) == (target.name, target.version, index):
            by_proof[fault.proof] += fault.count
    return by_proof[True] + by_proof[False], by_proof[True]


def _confirmed_count(counts: Sequence[int]) -> int:
    """The largest count that an honest replica among these must have reported: all but the tolerated ones may be
    slander."""
    return sorted(counts, reverse=True)[max_faulty(len(counts))]


HARDENED_MIN: Final = 3
OBSERVED_MIN: Final = 50
"""Assumed minimum of observations: a replica that never failed has a risk of one in a hundred."""
RISK_MAX: Final = 0.4
"""Largest risk of a replica that is not proven Byzantine. Above one half, more replicas would make a node worse in any
case."""

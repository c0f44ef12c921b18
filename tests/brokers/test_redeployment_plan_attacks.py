"""Byzantine replicas that try to have replicas moved to their node or away from another, by failing openly or never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from support.deployment_network import entry, key, overlay
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.operations.placement import PlacementPlan
from veilcast.brokers.operations.redeployment_plan import (
    FaultCount,
    ReplicaFindings,
    ReplicaReport,
    evaluate_reports,
    make_plan,
    plan_steps,
)
from veilcast.brokers.overlay import BrokerOverlay, add_overlay_keys, overlay_replica_keys
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError

SIZES = {"A": 3, "B": 7, "C": 7, "D": 3}
SPARES = list(entry("S", 0, ["s1", "s2", "s3", "s4"]).replicas)
LOT = Secret(b"lot" * 8)


def wide(sizes: dict[str, int]) -> BrokerOverlay:
    nodes = {name: (0, [f"{name.lower()}{index}" for index in range(1, size + 1)]) for name, size in sizes.items()}
    return overlay(1, nodes)


BASE = wide(SIZES)
CALM = ReplicaFindings({}, (), 1000)


def told(about: Callable[[str, int], list[FaultCount]]) -> list[ReplicaReport]:
    return [
        ReplicaReport(name, at, tuple(about(name, at)), 1000)
        for name, size in SIZES.items()
        for at in range(1, size + 1)
    ]


def against_a1(mark: FaultCount) -> ReplicaFindings:
    """The reports of neighbours and siblings against A's first replica."""
    return evaluate_reports(BASE, told(lambda name, at: [mark] if name in "AB" and (name, at) != ("A", 1) else []))


def test_one_proven_replica_is_replaced_and_moves_no_other() -> None:
    found = against_a1(FaultCount("A", 1, 0, 1, True))
    assert found.faulty == (key("a1"),)
    assert found.node_risk(BASE.node("A")) == CALM.node_risk(BASE.node("A"))
    assert make_plan(BASE, found, 3, profile="hardened").sizes == make_plan(BASE, CALM, 2, profile="hardened").sizes
    first, *_ = plan_steps(BASE, make_plan(BASE, found, 1, profile="hardened"), SPARES[:1], found, lot=LOT)
    assert [replica.key for replica in first.leaving] == [key("a1")]


@pytest.mark.parametrize("move", [False, True])
def test_a_replica_that_is_often_late_attracts_no_replicas_to_its_node(move: bool) -> None:
    found = against_a1(FaultCount("A", 1, 0, 400, False))
    assert found.failures[key("a1")] == 400
    assert found.node_risk(BASE.node("A")) == CALM.node_risk(BASE.node("A"))
    made, calm = (make_plan(BASE, each, 4, profile="hardened", move=move) for each in (found, CALM))
    assert made == calm


@pytest.mark.parametrize(("size", "byzantine"), [(3, 1), (5, 2), (7, 3)])
def test_a_minority_moves_the_risk_of_its_node_no_further_than_honest_replicas(size: int, byzantine: int) -> None:
    node = wide({"A": size}).nodes[0]
    honest = {replica.key: 10 + at for at, replica in enumerate(node.replicas[byzantine:])}
    lowest, highest = (
        ReplicaFindings(dict.fromkeys((r.key for r in node.replicas), count), (), 1000).node_risk(node)
        for count in (10, 10 + len(honest) - 1)
    )
    for count in (0, 1000):
        for proven in range(byzantine + 1):
            failures = honest | dict.fromkeys((replica.key for replica in node.replicas[:byzantine]), count)
            known = tuple(replica.key for replica in node.replicas[:proven])
            assert lowest <= ReplicaFindings(failures, known, 1000).node_risk(node) <= highest


def test_a_node_of_proven_replicas_only_has_the_risk_of_a_new_replica() -> None:
    byzantine = tuple(replica.key for replica in BASE.node("A").replicas)
    assert ReplicaFindings({}, byzantine, 1000).node_risk(BASE.node("A")) == CALM.node_risk(BASE.node("A"))


class TestProvenReplicaInPlan:
    GROWN = overlay(
        2,
        {
            name: (int(name == "A"), [f"{name.lower()}{at}" for at in range(1, n + 1)])
            for name, n in {**SIZES, "A": 5}.items()
        },
    )

    def test_is_reported_by_brokers_by_its_key(self) -> None:
        roster = overlay_replica_keys([BASE])
        known = FaultEvidence(10, roster)
        known.record(ReplicaId(BASE.node("A").scheme, 2), FaultReason.TWO_DEALINGS)
        add_overlay_keys(roster, self.GROWN)
        names = {node.id: node.name for node in self.GROWN.nodes}
        marks = [
            FaultCount(names[place.scheme.node], place.index, place.scheme.version, count, reason.is_proof)
            for place, reasons in known.counts().items()
            for reason, count in reasons.items()
        ]
        assert evaluate_reports(self.GROWN, told(lambda name, at: marks if name == "B" else [])).faulty == (key("a2"),)

    def test_is_not_cleared_when_the_node_grows(self) -> None:
        seen = [ReplicaReport("A", at, (FaultCount("B", 1, 0, 1, True),)) for at in (1, 2)]
        assert evaluate_reports(BASE, seen).faulty == (key("b1"),)
        assert evaluate_reports(self.GROWN, seen).faulty == ()
        assert evaluate_reports(self.GROWN, seen, {key("b1"), key("gone")}).faulty == (key("b1"),)


class TestReplicasGivenUp:
    FAILING = ReplicaFindings({key(f"a{index}"): 300 for index in (1, 2, 3)}, (), 1000)

    @pytest.mark.parametrize("spare", [0, 1, 2, 4])
    def test_none_in_hardened_where_only_spare_replicas_are_allotted(self, spare: int) -> None:
        made = make_plan(BASE, self.FAILING, spare, profile="hardened")
        assert all(made.sizes[name] >= size for name, size in SIZES.items())
        assert sum(made.sizes.values()) == sum(SIZES.values()) + spare - made.unused
        assert made.sizes["A"] == 3 + spare - made.unused

    def test_a_pair_of_each_node_if_the_operator_allows_it(self) -> None:
        made = make_plan(BASE, self.FAILING, 0, profile="hardened", move=True)
        assert made.sizes == {"A": 7, "B": 5, "C": 5, "D": 3}

    def test_none_of_nodes_on_no_path(self) -> None:
        made = make_plan(BASE, self.FAILING, 2, profile="hardened", paths=[])
        assert (made.sizes, made.unused) == (SIZES, 2)

    def test_a_paper_plan_that_shrinks_a_node_is_refused_in_hardened(self) -> None:
        base, found = wide({"A": 3, "B": 7}), ReplicaFindings({key("a1"): 4, key("b1"): 4}, (), 1000)
        assert make_plan(base, found, 0, profile="paper", method="phases").sizes == {"A": 5, "B": 5}
        with pytest.raises(ConfigError, match="'B' of the plan has 5 of the 7 replicas it keeps; such plans are for"):
            make_plan(base, found, 0, profile="hardened", method="phases")
        assert make_plan(base, found, 0, profile="hardened", method="phases", move=True).sizes == {"A": 5, "B": 5}

    def test_in_paper_without_permission(self) -> None:
        assert make_plan(BASE, self.FAILING, 0, profile="paper").sizes["B"] < 7
        with pytest.raises(ConfigError, match="in any case"):
            make_plan(BASE, self.FAILING, 0, profile="paper", move=True)


class TestLeavingReplicas:
    QUIET = ("b5", "b6", "b7")
    """Byzantine replicas that were never late, while all honest ones of B were."""
    FOUND = ReplicaFindings({key(f"b{index}"): 1 for index in (1, 2, 3, 4)}, (key("b1"),), 1000)
    SHRUNK = PlacementPlan({"A": 3, "B": 3, "C": 7, "D": 3}, 4, ())

    def left(
        self, found: ReplicaFindings, lot: int, made: PlacementPlan = SHRUNK, base: BrokerOverlay = BASE
    ) -> set[bytes]:
        (step,) = plan_steps(base, made, [], found, lot=Secret(lot.to_bytes(32, "big")))
        return {replica.key for replica in step.leaving}

    def test_a_proven_replica_first(self) -> None:
        assert all(key("b1") in self.left(self.FOUND, lot) for lot in range(20))

    def test_then_by_lot_regardless_of_lateness(self) -> None:
        calm = ReplicaFindings({}, (key("b1"),), 1000)
        drawn = [self.left(self.FOUND, lot) for lot in range(60)]
        assert drawn == [self.left(calm, lot) for lot in range(60)]
        counts = Counter(one for left in drawn for one in left if one != key("b1"))
        assert len(counts) == 6
        assert all(15 <= count <= 45 for count in counts.values()), "three of six leave"
        alone = {key(name) for name in self.QUIET}
        assert sum(left.isdisjoint(alone) for left in drawn) < 10, "one in twenty, where it was all"

    def test_a_new_lot_in_each_version_and_the_same_if_asked_twice(self) -> None:
        later = overlay(2, {name: (0, [f"{name.lower()}{at}" for at in range(1, n + 1)]) for name, n in SIZES.items()})
        first, second = ([self.left(CALM, lot, base=base) for lot in range(20)] for base in (BASE, later))
        assert first == [self.left(CALM, lot) for lot in range(20)]
        assert first != second

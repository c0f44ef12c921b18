"""From the brokers' reports to the next orders: slander moves no replica, proven ones leave first, and no plan needs
too many."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec
import pytest

from support.deployment_network import entry, key, overlay
from veilcast.brokers.operations.placement import PlacementPlan
from veilcast.brokers.operations.redeployment_plan import (
    RISK_MAX,
    FaultCount,
    ReplicaFindings,
    ReplicaReport,
    evaluate_reports,
    make_plan,
    overlay_paths,
    plan_steps,
)
from veilcast.brokers.overlay import BrokerOverlay
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LocalError

NODES = {name: (0, [f"{name.lower()}{index}" for index in (1, 2, 3)]) for name in "ABCD"}
BASE = overlay(7, NODES)
SPARES = list(entry("S", 0, ["s1", "s2", "s3", "s4"]).replicas)
NOTHING = ReplicaFindings({}, (), 1000)
LOT = Secret(b"lot" * 8)


def told(reports: Mapping[str, list[FaultCount]] | None = None, *, silent: tuple[str, ...] = ()) -> list[ReplicaReport]:
    return [
        ReplicaReport(node, index, tuple((reports or {}).get(name, ())), 1000)
        for node, (_, names) in NODES.items()
        for index, name in enumerate(names, 1)
        if name not in silent
    ]


def late(node: str, index: int, count: int = 10, scheme: int = 0) -> FaultCount:
    return FaultCount(node, index, scheme, count, False)


def report_proof(node: str, index: int, count: int = 1) -> FaultCount:
    return FaultCount(node, index, 0, count, True)


def test_one_replica_of_a_node_slanders_nobody() -> None:
    found = evaluate_reports(
        BASE, told({"b1": [report_proof("C", 2, 1000), late("C", 1, 1000)], "d1": [report_proof("C", 2, 1000)]})
    )
    assert not found.faulty
    assert not any(found.failures.values())


class TestFindings:
    def test_a_fault_counts_as_often_as_an_honest_replica_must_have_seen_it(self) -> None:
        found = evaluate_reports(
            BASE,
            told({"b1": [late("C", 2, 9)], "b2": [late("C", 2, 4), report_proof("C", 2)], "b3": [late("C", 2, 3)]}),
        )
        assert found.failures[key("c2")] == 5, "one of the two who counted most may lie"
        assert not found.faulty
        found = evaluate_reports(BASE, told({"b1": [report_proof("C", 2)], "b3": [report_proof("C", 2)]}))
        assert found.faulty == (key("c2"),)

    def test_a_replica_without_a_report_has_failed_once(self) -> None:
        found = evaluate_reports(BASE, told(silent=("c3",)))
        assert found.failures == {key(name): int(name == "c3") for _, names in NODES.values() for name in names}

    def test_counts_under_an_older_scheme_are_ignored(self) -> None:
        found = evaluate_reports(BASE, told({name: [late("C", 2, scheme=5)] for name in NODES["B"][1]}))
        assert not any(found.failures.values())

    def test_reports_are_read_as_brokers_print_them(self) -> None:
        facts = {
            "node": "A",
            "index": 1,
            "version": 7,
            "marks": [{"node": "B", "index": 2, "scheme": 0, "reason": "x", "proof": True, "count": 3}],
        }
        assert msgspec.convert(facts, ReplicaReport) == ReplicaReport("A", 1, (report_proof("B", 2, 3),))

    def test_risk_grows_with_the_failures_of_most_replicas(self) -> None:
        calm, worse = ReplicaFindings({}, (), 0), ReplicaFindings({key("c1"): 40, key("c2"): 30}, (), 100)
        worst = ReplicaFindings({key("c1"): 400, key("c2"): 300}, (), 100)
        assert 0 < calm.node_risk(BASE.node("C")) < 0.02 < worse.node_risk(BASE.node("C")) < 0.35
        assert worst.node_risk(BASE.node("C")) == RISK_MAX


class TestPlan:
    def test_pairs_go_to_the_node_that_fails_most_and_sizes_stay_odd(self) -> None:
        found = ReplicaFindings({key("c1"): 100, key("c2"): 90}, (), 1000)
        made = make_plan(BASE, found, 2, profile="hardened")
        assert made.sizes == {"A": 3, "B": 3, "C": 5, "D": 3}
        assert not made.unprotected

    def test_a_spare_replica_is_reserved_for_each_proven_one(self) -> None:
        found = ReplicaFindings({}, (key("c1"),), 1000)
        assert sum(make_plan(BASE, found, 2, profile="hardened").sizes.values()) == 12
        assert sum(make_plan(BASE, found, 3, profile="hardened").sizes.values()) == 14

    def test_a_plan_for_more_replicas_than_available_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="asks for 4 replicas besides those that nodes keep, and there are 2"):
            make_plan(BASE, NOTHING, 2, profile="hardened", replicas=4)
        small = overlay(0, {"A": (0, ["a1"]), "B": (0, ["b1"])})
        with pytest.raises(ConfigError, match="2 virtual nodes need 2 more"):
            make_plan(small, NOTHING, 2, profile="hardened")

    def test_the_papers_plan_is_refused_with_the_reason_where_hardened_cannot_carry_it_out(self) -> None:
        found = ReplicaFindings({key("c1"): 100, key("b2"): 50}, (), 1000)
        made = make_plan(BASE, found, 0, profile="paper", method="phases")
        assert sum(made.sizes.values()) == 12
        assert made.sizes["A"] == 1
        assert made.unprotected, "paths with nodes of one"
        with pytest.raises(ConfigError, match="of the plan"):
            make_plan(BASE, found, 0, profile="hardened", method="phases")

    def test_unprotected_paths_are_listed(self) -> None:
        small = overlay(0, {"A": (0, ["a1"]), "B": (0, ["b1"]), "C": (0, ["c1"])})
        made = make_plan(small, NOTHING, 2, profile="paper", paths=overlay_paths(small, {("A", "C"): 1, ("B", "B"): 5}))
        assert made.sizes == {"A": 1, "B": 3, "C": 1}
        assert made.unprotected == ("A - C",)

    def test_nodes_on_no_path_keep_the_minimum(self) -> None:
        made = make_plan(BASE, NOTHING, 4, profile="hardened", paths=overlay_paths(BASE, {("A", "B"): 1}))
        assert made.sizes == {"A": 5, "B": 5, "C": 3, "D": 3}

    def test_without_pairs_all_edges_are_connected(self) -> None:
        assert [path.name for path in overlay_paths(overlay(0, {"A": (0, ["a1"])}))] == ["A - A"]
        assert [path.nodes for path in overlay_paths(BASE)][2] == ("A", "B", "C", "D")
        assert overlay_paths(BASE, {("B", "C"): Fraction(1, 2)})[0].weight == Fraction(1, 2)


class TestPlanSteps:
    def names(self, made: BrokerOverlay, node: str) -> list[str]:
        return [replica.address.split(":")[0] for replica in made.node(node).replicas]

    def test_a_pair_joins_by_one_valid_order(self) -> None:
        found = ReplicaFindings({key("c1"): 100, key("c2"): 90}, (), 1000)
        (step,) = plan_steps(BASE, make_plan(BASE, found, 2, profile="hardened"), SPARES, found, lot=LOT)
        BASE.check_successor(step.overlay)
        step.overlay.check("hardened")
        assert self.names(step.overlay, "C") == ["c1", "c2", "c3", "s1", "s2"]
        assert (step.node, step.overlay.version, step.overlay.node("C").version) == ("C", 8, 1)

    def test_a_proven_replica_is_replaced_and_never_used_again(self) -> None:
        found = ReplicaFindings({}, (key("c2"),), 1000)
        (step,) = plan_steps(BASE, make_plan(BASE, found, 1, profile="hardened"), SPARES[:1], found, lot=LOT)
        assert self.names(step.overlay, "C") == ["c1", "c3", "s1"]
        assert [replica.key for replica in step.leaving] == [key("c2")]

    def test_without_a_spare_replica_the_proven_one_stays(self) -> None:
        found = ReplicaFindings({}, (key("c2"),), 1000)
        assert plan_steps(BASE, make_plan(BASE, found, 0, profile="hardened"), [], found, lot=LOT) == []

    def test_a_leaving_replica_joins_where_needed_one_node_at_a_time(self) -> None:
        wide = overlay(7, NODES | {"B": (4, ["b1", "b2", "b3", "b4", "b5"])})
        first, second = plan_steps(wide, PlacementPlan({"A": 3, "B": 3, "C": 5, "D": 3}, 0, ()), [], NOTHING, lot=LOT)
        assert len(first.leaving) == 2
        assert {*first.leaving, *first.overlay.node("B").replicas} == {*wide.node("B").replicas}
        assert second.overlay.node("C").replicas == (*wide.node("C").replicas, *first.leaving)
        wide.check_successor(first.overlay)
        first.overlay.check_successor(second.overlay)

    def test_steps_for_more_replicas_than_available_are_refused(self) -> None:
        sizes = {"A": 3, "B": 3, "C": 7, "D": 3}
        with pytest.raises(ConfigError, match="asks for 4 more replicas, and 1 are spare"):
            plan_steps(BASE, PlacementPlan(sizes, 0, ()), SPARES[:1], NOTHING, lot=LOT)

    def test_a_proven_replica_that_leaves_joins_no_other_node(self) -> None:
        wide = overlay(7, NODES | {"B": (4, ["b1", "b2", "b3", "b4", "b5"])})
        found = ReplicaFindings({}, (key("b1"),), 1000)
        with pytest.raises(ConfigError, match="needs 2 replicas, and 1 are spare"):
            plan_steps(wide, PlacementPlan({"A": 3, "B": 3, "C": 5, "D": 3}, 0, ()), [], found, lot=LOT)

    def test_a_spare_replica_must_not_be_in_the_overlay(self) -> None:
        with pytest.raises(ConfigError, match="already"):
            plan_steps(
                BASE, PlacementPlan(dict.fromkeys("ABCD", 3), 0, ()), [BASE.nodes[0].replicas[0]], NOTHING, lot=LOT
            )
        with pytest.raises(LocalError, match="another overlay"):
            plan_steps(BASE, PlacementPlan({"A": 3}, 0, ()), [], NOTHING, lot=LOT)

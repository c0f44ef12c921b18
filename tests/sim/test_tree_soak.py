"""The soak of the tree: the draws of its seeds, trees that hold, and planted bugs that are found.

The same seeds pass without a bug, so it is the bug that is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from veilcast.cli.main import main
from veilcast.machine import Address
from veilcast.sim import scenario
from veilcast.sim.faults import Crash, Cut, Skew
from veilcast.sim.scenario import Scenario, ScenarioConfig, ScenarioOutcome
from veilcast.sim.tree import soak
from veilcast.sim.tree.population import TreePopulation
from veilcast.tree import subscriber
from veilcast.tree.hardened_forwarder import Forwarder
from veilcast.tree.prober import ProbeOutcome as Ended
from veilcast.tree.publisher import TreePublisher
from veilcast.tree.repair import TreeRepair

Plant = Callable[[pytest.MonkeyPatch], None]
PLANS = [soak.SOAK.plan(seed).config for seed in range(100)]
SECOND = 1_000_000


@pytest.mark.parametrize("seed", [1, 156])
def test_a_tree_delivers_again_a_minute_after_the_last_fault(seed: int) -> None:
    """In seed 156 a fifth of all frames is lost for a hundred seconds, and a node drops what it should forward."""
    outcome = soak.SOAK.run(seed)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.duration_us == soak.TIMES.duration_us


@pytest.mark.all_only
def test_six_more_seeds_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """`veilcast sim soak --of tree --seeds 500` is the heavy form."""
    assert main(["sim", "soak", "--of", "tree", "--seed", "2", "--seeds", "6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] == 6
    assert set(told["passed_by_variant"]) <= {f"tree soak {variant}" for variant in soak.VARIANTS}


def test_every_part_of_a_hardened_tree_dies_in_some_seed_and_all_but_one_are_back_before_the_calm() -> None:
    crashes = [fault for plan in PLANS for fault in plan.faults if isinstance(fault, Crash)]
    assert {fault.node for fault in crashes} == set(soak.VARIANTS["hardened"].addresses())
    assert any(isinstance(fault, Cut) for plan in PLANS for fault in plan.faults)
    for plan in PLANS:
        assert isinstance(plan.population, TreePopulation)
        lasting = [fault for fault in plan.faults if not isinstance(fault, Skew | Cut)]
        for fault in lasting:
            assert fault.at_us >= soak.TIMES.quiet_us
            assert fault.at_us + (fault.for_us or 0) <= soak.TIMES.calm_us
        last = [fault for fault in lasting if fault.for_us is None]
        busy = (*plan.population.publisher_names(), *plan.population.subscriber_names())
        if plan.population.tree.profile == "hardened":
            assert [(type(fault), fault.at_us) for fault in last] == [(Crash, soak.TIMES.calm_us)]
            assert not set(last[0].nodes()) & set(busy)
        else:
            assert not any(isinstance(fault, Crash) for fault in lasting)


SMALL = TreePopulation(
    nodes=8,
    publishers=1,
    subscribers=2,
    topics=1,
    bits=0,
    notes=20,
    first_us=30 * SECOND,
    every_us=2 * SECOND,
    tree=msgspec.structs.replace(soak.VARIANTS["hardened"].tree, copies=1),
    directory=soak.VARIANTS["hardened"].directory,
    checks=("once", "intact", "matching", "complete", "bounds"),
)
"""Every publication has one origin only, so that no copy makes up for a fault."""


TWICE = msgspec.structs.replace(SMALL.tree, copies=2)
"""For cases where an origin may itself be a hoarder."""


def run(*faults: Any, **changes: Any) -> ScenarioOutcome:
    population = msgspec.structs.replace(SMALL, **changes)
    duration_us = population.first_us + population.notes * population.every_us + 20 * SECOND
    config = ScenarioConfig("a bug", duration_us, population, faults=faults, epoch_us=3_600 * SECOND)
    return scenario.run_scenario(Scenario("planted", config), 3)


def forwards_on_topic_only(patch: pytest.MonkeyPatch) -> None:
    """A message that arrives under one entry leaves under all entries, which all want it here; as in the paper."""

    pass_on = Forwarder._forward_copy

    def everywhere(self: Forwarder, entry: Any, message: bytes, body: bytes, now: int) -> None:
        for each in list(self._entries._entries.values()):
            pass_on(self, each, message, body, now)

    patch.setattr(Forwarder, "_forward_copy", everywhere)


def is_never_told_again(patch: pytest.MonkeyPatch) -> None:
    """A restarted node has no entries, and its subscribers do not notice."""
    judge = TreeRepair.handle_outcome

    def deaf(self: TreeRepair, probing: Any, term: Any, stop: int, way: Any, how: Ended, now: int) -> None:
        if how is not Ended.MISSING:
            judge(self, probing, term, stop, way, how, now)

    patch.setattr(TreeRepair, "handle_outcome", deaf)
    patch.setattr(subscriber, "_started_us", lambda listing, node: 0)


def never_excludes_a_dropper(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TreeRepair, "_avoid", lambda self, node, now, weight=0.0: None)


def settles_before_anybody_has_heard(patch: pytest.MonkeyPatch) -> None:
    """A publication in flight is removed from the disk, and lost if the publisher dies then."""
    send = TreePublisher.add

    def hasty(self: TreePublisher, record: int, letter: Any, now: int) -> None:
        send(self, record, letter, now)
        self._outbox.settle(record, letter)

    patch.setattr(TreePublisher, "add", hasty)


PLANTED: list[tuple[Plant, tuple[Any, ...], dict[str, Any], str]] = [
    (forwards_on_topic_only, (), {"subscribers": 6, "notes": 2, "checks": ("frugal",)}, "NoMultiplication"),
    (
        is_never_told_again,
        tuple(Crash(at_us=at * SECOND, for_us=SECOND, node=Address(f"n{node}")) for at, node in ((12, 2), (16, 3))),
        {"first_us": 80 * SECOND},
        "Complete",
    ),
    (never_excludes_a_dropper, (), {"hoarders": 1, "first_us": 80 * SECOND, "tree": TWICE}, "Complete"),
    (
        settles_before_anybody_has_heard,
        (Crash(at_us=30 * SECOND + 10_000, for_us=2 * SECOND, node=Address("n0")),),
        {"notes": 1},
        "Complete",
    ),
]


@pytest.mark.parametrize(("plant", "faults", "changes", "by"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, faults: tuple[Any, ...], changes: dict[str, Any], by: str
) -> None:
    assert run(*faults, **changes).violations == ()
    plant(monkeypatch)
    (violation,) = run(*faults, **changes).violations
    assert violation.startswith(by)

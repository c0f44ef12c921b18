"""The soaks of secret forwarding: the draws of their seeds, overlays that hold, and planted bugs that are found.

The same seeds pass without a bug, so it is the bug that is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from veilcast.brokers import broker
from veilcast.brokers.content.blocks import Strategy
from veilcast.brokers.content.publisher import ContentPublisher
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.scheme import ReplicaId, Scheme, max_faulty
from veilcast.brokers.keys.transfer_sender import TransferSender
from veilcast.brokers.routing.view import Outgoing
from veilcast.cli.main import main
from veilcast.core.inbox import Inbox
from veilcast.machine import Address
from veilcast.sim import scenario
from veilcast.sim.brokers import soak
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.faults import Crash, Cut, Skew
from veilcast.sim.scenario import Scenario, ScenarioConfig, ScenarioOutcome
from veilcast.wire.brokers import ConfirmContent, NextShare

Plant = Callable[[pytest.MonkeyPatch], None]
PLANS = [soak.SOAK.plan(seed).config for seed in range(60)]
SECOND = 1_000_000


@pytest.mark.parametrize("seed", [2, 3])
def test_an_overlay_loses_nothing_that_it_promised_and_tells_no_key(seed: int) -> None:
    outcome = soak.SOAK.run(seed)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.duration_us == soak.TIMES.duration_us


@pytest.mark.parametrize("seed", [1, 2])
def test_two_liars_of_five_at_each_of_four_hops_stop_nothing_read_nothing_and_are_named(seed: int) -> None:
    outcome = soak.LIARS_SOAK.run(seed)
    assert outcome.violations == ()
    assert outcome.deliveries == 2
    assert outcome.facts["liars"] == 8
    assert outcome.facts["named"] > 0


@pytest.mark.parametrize("case", range(0, 33, 4))
def test_behaviours_one_by_one(case: int) -> None:
    outcome = soak.EVERY_SOAK.run(case)
    assert outcome.violations == ()
    assert outcome.deliveries == 2


@pytest.mark.all_only
@pytest.mark.parametrize(("of", "seeds"), [("brokers", 8), ("brokers-liars", 16), ("brokers-every", 33)])
def test_more_seeds_pass(of: str, seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`veilcast sim soak --of brokers-liars --seeds 10000` is the heavy form."""
    assert main(["sim", "soak", "--of", of, "--seed", "40", "--seeds", str(seeds), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] == seeds


def test_of_no_node_more_fail_at_a_time_than_it_bears() -> None:
    died = set()
    for seed, plan in enumerate(PLANS):
        population = plan.population
        assert isinstance(population, BrokersPopulation)
        liars = population.draw_overlay(seed).liars
        spare = max_faulty(population.replicas) - population.liars
        away = [fault for fault in plan.faults if isinstance(fault, Crash) and fault.node not in liars]
        died |= {fault.node[0] for fault in away}
        for node in range(population.nodes):
            names = population.replica_names(node)
            spells = [(f.at_us, f.at_us + (f.for_us or 0) + soak.BACK_US) for f in away if f.node in names]
            assert all(sum(one <= at < end for one, end in spells) <= spare for at, _ in spells)
        for fault in plan.faults:
            if not isinstance(fault, Skew):
                assert soak.TIMES.quiet_us <= fault.at_us + (fault.for_us or 0) <= soak.TIMES.calm_us
    assert died == {"v", "c"}
    assert any(isinstance(fault, Cut) for plan in PLANS for fault in plan.faults)


# --- planted bugs -----------------------------------------------------------------------------------------------------

SMALL = BrokersPopulation(
    nodes=3,
    shape="line",
    readers=1,
    topics=1,
    bits=0,
    notes=3,
    first_us=6 * SECOND,
    broker=soak.VARIANTS["hardened"].broker,
    client=soak.VARIANTS["hardened"].client,
    checks=(*soak.CHECKS[:-2], "all named", "bounds"),
)


def run(cast: dict[str, str], *faults: Any, **changes: Any) -> ScenarioOutcome:
    population = msgspec.structs.replace(SMALL, cast=cast, **changes)
    return scenario.run_scenario(
        Scenario("planted", ScenarioConfig("a bug", 60 * SECOND, population, faults=faults)), 1
    )


def shows_shares_to_anyone(patch: pytest.MonkeyPatch) -> None:
    """A holder believes one replica that others lack their shares."""

    def credulous(
        self: TransferSender, scheme: Scheme, dealt: Any, replica: int, asking: ReplicaId, now: int
    ) -> list[Outgoing]:
        shown = NextShare(self._advertisement, dealt.dealing.share_for(replica).encode().reveal())
        return [Outgoing(asking, shown)]

    patch.setattr(TransferSender, "_show", credulous)


def accepts_claims_from_anyone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker, "check_bring", lambda brought, key: None)


def names_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FaultEvidence, "record", lambda self, place, reason, times=1: None)


def blames_the_next_one(patch: pytest.MonkeyPatch) -> None:
    accuse = FaultEvidence.record

    def mistaken(self: FaultEvidence, place: ReplicaId, reason: FaultReason, times: int = 1) -> None:
        accuse(self, ReplicaId(place.scheme, place.index % place.scheme.size + 1), reason, times)

    patch.setattr(FaultEvidence, "record", mistaken)


def settles_with_the_first_word(patch: pytest.MonkeyPatch) -> None:
    """A publisher believes one replica that every subscriber has the content."""

    def hasty(self: ContentPublisher, done: ConfirmContent, source: Address) -> None:
        sending = self._contents.get(done.content)
        if sending is not None:
            sending.is_confirmed = True
            self._abandon_sealing(sending)
            self._settle(sending)

    patch.setattr(ContentPublisher, "on_done", hasty)


def delivers_repeats(patch: pytest.MonkeyPatch) -> None:
    put = Inbox.put

    def forgetful(self: Inbox, *arguments: Any) -> Any:
        self._seen.clear()
        return put(self, *arguments)

    patch.setattr(Inbox, "put", forgetful)


ONE_COPY = {
    "broker": msgspec.structs.replace(SMALL.broker, strategy=Strategy.ONE),
    "client": msgspec.structs.replace(SMALL.client, strategy=Strategy.ONE),
    "notes": 8,
}
DEATH = Crash(at_us=6 * SECOND + 50_000, for_us=SECOND, node=Address("c0"))

BUGS: Mapping[Plant, tuple[dict[str, str], tuple[Any, ...], dict[str, Any], str]] = {
    shows_shares_to_anyone: ({"v1.1": "accuse"}, (), {}, "KeySecrecy"),
    accepts_claims_from_anyone: (
        {"v2.1": "pool"},
        (),
        {"intruders": 1, "checks": ("secret",)},
        "KeySecrecy",
    ),
    names_nobody: ({"v0.1": "share"}, (), {}, "LiarsNamed"),
    blames_the_next_one: ({"v0.1": "share"}, (), {}, "LiarsNamed"),
    settles_with_the_first_word: ({"v0.1": "drop"}, (), ONE_COPY, "Complete"),
    delivers_repeats: ({}, (DEATH,), {}, "AtMostOnce"),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    cast, faults, changes, by = BUGS[plant]
    assert run(cast, *faults, **changes).violations == ()
    plant(monkeypatch)
    (violation,) = run(cast, *faults, **changes).violations
    assert violation.startswith(by)

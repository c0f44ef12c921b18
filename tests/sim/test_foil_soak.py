"""The soak of foiling: the draws of its seeds, nothing is lost, and planted bugs are found.

The same seeds pass without a bug, so it is the bug that is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from veilcast.cli.main import main
from veilcast.core.inbox import Inbox
from veilcast.crypto.seal import OVERHEAD
from veilcast.crypto.secret import Secret
from veilcast.foil import publisher
from veilcast.foil.event import CandidateHead, seal_fake_body
from veilcast.foil.publisher_store import PublisherStore
from veilcast.foil.session import MqttSession
from veilcast.foil.subscriber import FoilSubscriber
from veilcast.foil.winnower import Winnower
from veilcast.sim.faults import Crash, Cut, Skew
from veilcast.sim.foil import soak
from veilcast.sim.foil.population import BROKER
from veilcast.topics import Conjunction

Plant = Callable[[pytest.MonkeyPatch], None]
PLANS = [soak.SOAK.plan(seed).config for seed in range(100)]


@pytest.mark.parametrize("seed", [2, 32, 65])
def test_nothing_that_was_promised_is_lost_or_comes_twice(seed: int) -> None:
    """In seed 32 the broker dies while a publisher has requests that it has not answered."""
    outcome = soak.SOAK.run(seed)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.duration_us == soak.TIMES.duration_us


@pytest.mark.all_only
def test_ten_more_seeds_pass_and_have_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    """`veilcast sim soak --of foil --seeds 500` is the heavy form."""
    assert main(["sim", "soak", "--of", "foil", "--seed", "3", "--seeds", "10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] == 10
    assert sorted(told["passed_by_variant"]) == sorted(f"foil soak {variant}" for variant in soak.VARIANTS)


def test_the_broker_dies_in_every_seed_each_member_in_some_and_all_are_back_before_the_calm() -> None:
    crashes = [fault for plan in PLANS for fault in plan.faults if isinstance(fault, Crash)]
    assert {fault.node for fault in crashes} == set(soak.VARIANTS["hardened"].addresses())
    assert any(isinstance(fault, Cut) for plan in PLANS for fault in plan.faults)
    for plan in PLANS:
        assert any(isinstance(fault, Crash) and fault.node == BROKER for fault in plan.faults)
        for fault in plan.faults:
            assert fault.at_us >= soak.TIMES.quiet_us
            if not isinstance(fault, Skew | Cut):
                assert fault.for_us is not None
                assert fault.at_us + fault.for_us <= soak.TIMES.calm_us


def does_not_ask_for_what_it_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FoilSubscriber, "_request_repeats", lambda self, *arguments: None)


def trusts_what_came_last(patch: pytest.MonkeyPatch) -> None:
    """A subscriber that was paused takes old messages for news of its broker."""
    heard = MqttSession._dispatch

    def trusting(self: MqttSession, packet: Any, now: int) -> None:
        heard(self, packet, now)
        self.confirmed_us = now

    patch.setattr(MqttSession, "_dispatch", trusting)


def keeps_nothing_that_was_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: PublisherStore, *arguments: Any) -> Iterator[tuple[int, int]]:
        return iter(())

    patch.setattr(PublisherStore, "find_events", nothing)


def forgets_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    gone = MqttSession._stream_lost

    def forgetful(self: MqttSession, now: int) -> None:
        self._in_flight.clear()
        gone(self, now)

    patch.setattr(MqttSession, "_stream_lost", forgetful)


def delivers_repeats(patch: pytest.MonkeyPatch) -> None:
    put = Inbox.put

    def forgetful(self: Inbox, *arguments: Any) -> bool:
        self._seen.clear()
        return put(self, *arguments)

    patch.setattr(Inbox, "put", forgetful)
    patch.setattr(Winnower, "mark_seen", lambda self, payload: None)


def delivers_what_decoys_bring(patch: pytest.MonkeyPatch) -> None:
    taken = FoilSubscriber.take_candidate

    def careless(self: FoilSubscriber, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Conjunction, "matches", lambda self, publication: True)
            taken(self, *arguments)

    patch.setattr(FoilSubscriber, "take_candidate", careless)


def draws_fakes_anew(patch: pytest.MonkeyPatch) -> None:
    drawn = iter(range(1 << 40))

    def anew(head: CandidateHead, chaff: Secret, size: int) -> bytes:
        return seal_fake_body(head, Secret(next(drawn).to_bytes(32, "big")), size)

    patch.setattr(publisher, "seal_fake_body", anew)


def makes_fakes_shorter(patch: pytest.MonkeyPatch) -> None:
    def shorter(head: CandidateHead, chaff: Secret, size: int) -> bytes:
        return seal_fake_body(head, chaff, 1024 + OVERHEAD if size > 1024 + OVERHEAD else 4096 + OVERHEAD)

    patch.setattr(publisher, "seal_fake_body", shorter)


BUGS: Mapping[str, tuple[Plant, str]] = {
    "does not ask for what it missed": (does_not_ask_for_what_it_missed, "Complete"),
    "delivers repeats": (delivers_repeats, "AtMostOnce"),
    "delivers what decoys bring": (delivers_what_decoys_bring, "Matching"),
    "draws fakes anew": (draws_fakes_anew, "CandidatesAlike"),
    "makes fakes shorter": (makes_fakes_shorter, "CandidatesAlike"),
}
MORE_BUGS: Mapping[str, tuple[Plant, str]] = {
    "trusts what came last": (trusts_what_came_last, "Complete"),
    "keeps nothing that was acknowledged": (keeps_nothing_that_was_acknowledged, "Complete"),
    "forgets what is under way": (forgets_what_is_under_way, "Complete"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_found_by_its_checker(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(*BUGS[bug], monkeypatch)


@pytest.mark.all_only
@pytest.mark.parametrize("bug", MORE_BUGS)
def test_planted_bugs_of_those_who_repeat_are_found_too(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(*MORE_BUGS[bug], monkeypatch)


def check(plant: Plant, checker: str, patch: pytest.MonkeyPatch) -> None:
    plant(patch)
    outcomes = (soak.SOAK.run(seed) for seed in SEEDS)
    found = next(outcome.violations[0] for outcome in outcomes if outcome.violations)
    assert found.startswith(checker)
    assert "veilcast sim soak --of foil --seeds 1 --seed" in found


SEEDS = (2, 65)
"""Both pass without a bug; most bugs are found by the first."""

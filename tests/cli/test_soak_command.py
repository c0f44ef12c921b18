"""`veilcast sim soak`: the result is the same for any number of jobs, and the first failing seed ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from veilcast.cli import sim_soak
from veilcast.cli.exits import FAILED_CHECK, INTERRUPTED
from veilcast.cli.main import main
from veilcast.sim.engine import FrameCounts
from veilcast.sim.scenario import Scenario, ScenarioOutcome
from veilcast.sim.soak import Soak


@dataclass(frozen=True)
class FakeSoak(Soak):
    """A soak of mesh seeds whose outcomes a function makes."""

    outcome: Callable[[int], ScenarioOutcome]

    def plan(self, seed: int) -> Scenario:
        raise NotImplementedError

    def run(self, seed: int) -> ScenarioOutcome:
        return self.outcome(seed)


def fake(seed: int) -> ScenarioOutcome:
    """A run that fails in every seed from 3 on."""
    broken = (f"Everyone: n3 never\nreplay: veilcast sim soak --seeds 1 --seed {seed}",) if seed >= 3 else ()
    return ScenarioOutcome("soak SG", seed, "", FrameCounts(0, 0, 0, 0, 0), 7, 1, {}, broken)


def test_the_first_failure_ends_the_soak_and_is_reported_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(seed: int) -> ScenarioOutcome:
        ran.append(seed)
        return fake(seed)

    monkeypatch.setitem(sim_soak.SOAKS, "mesh", FakeSoak(run))
    assert main(["sim", "soak", "--seeds", "9", "--jobs", "1"]) == FAILED_CHECK
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "3 of 9 seeds passed: soak SG 3; 21 notes delivered"
    assert out[1] == "seed 3 failed, soak SG"
    assert out[-1] == "replay: veilcast sim soak --seeds 1 --seed 3"
    assert ran == [0, 1, 2, 3]


def test_a_failure_in_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sim_soak.SOAKS, "mesh", FakeSoak(fake))
    assert main(["sim", "soak", "--seed", "5", "--seeds", "2", "--jobs", "1", "--json"]) == FAILED_CHECK
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] == 0
    assert told["failure"]["seed"] == 5


@pytest.mark.all_only
def test_processes_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def told(jobs: str) -> Any:
        assert main(["sim", "soak", "--seed", "3", "--seeds", "2", "--jobs", jobs, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert told("1") == told("2")


def test_an_interrupt_ends_it_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seed: int) -> ScenarioOutcome:
        raise KeyboardInterrupt

    monkeypatch.setitem(sim_soak.SOAKS, "mesh", FakeSoak(interrupted))
    assert main(["sim", "soak", "--jobs", "1"]) == INTERRUPTED
    assert capsys.readouterr().err == "veilcast: interrupted\n"


def test_a_machine_with_very_many_cores_needs_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sim_soak.SOAKS, "mesh", FakeSoak(fake))
    monkeypatch.setattr("os.cpu_count", lambda: 1024)
    assert main(["sim", "soak", "--seeds", "1"]) == 0

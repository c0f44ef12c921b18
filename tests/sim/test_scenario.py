"""Scenarios load by name or path, name what they refuse, and fail with the command that replays."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim import flood, scenario
from veilcast.sim.faults import Crash, Partition
from veilcast.sim.flood import ID_SIZE, FloodNode

LONG = ("mesh-sybils",)
"""Scenarios that take minutes."""

SMALL = """
about = "small"
duration_us = 3_000_000
[population]
kind = "flood"
nodes = 10
messages = 5
"""


LARGE = ("mesh-hardened", "mesh-many", "mesh-certified", "tree-")
"""One seed is enough of these here."""
NAMES = [name for name in scenario.packaged_names() if name not in LONG]


def marks_of(name: str, *, is_quick: bool) -> list[pytest.MarkDecorator]:
    if name == "mesh-many-hardened":
        return [pytest.mark.heavy]
    return [] if is_quick else [pytest.mark.all_only]


RUNS = [
    pytest.param(name, seed, marks=marks_of(name, is_quick=seed < 2))
    for name in NAMES
    for seed in range(1 if name.startswith(LARGE) else 5)
]
REPEATS = [pytest.param(name, marks=marks_of(name, is_quick=not name.startswith(LARGE))) for name in NAMES]


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_a_packaged_scenario_runs_clean_and_says_what_it_is_about(name: str, seed: int) -> None:
    loaded = scenario.load_scenario(name)
    outcome = scenario.run_scenario(loaded, seed)
    assert loaded.config.about
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.duration_us == loaded.config.duration_us


@pytest.mark.parametrize("name", REPEATS)
def test_a_packaged_scenario_has_the_same_outcome_again(name: str) -> None:
    loaded = scenario.load_scenario(name)
    assert scenario.run_scenario(loaded, 0) == scenario.run_scenario(loaded, 0)


def test_a_path_works_like_a_name(tmp_path: Path) -> None:
    path = tmp_path / "my scenario.toml"
    path.write_text(SMALL)
    loaded = scenario.load_scenario(path)
    assert loaded.name == str(path)
    assert scenario.run_scenario(loaded, 1).counts.sent > 0


def test_a_script_of_faults_is_read() -> None:
    script = """
[[faults]]
kind = "crash"
node = "n3"
at_us = 1_000
for_us = 2_000
[[faults]]
kind = "partition"
sources = ["n1"]
targets = ["n2", "n3"]
"""
    config = scenario.parse_config((SMALL + script).encode(), "x")
    assert config.faults == (
        Crash(node=Address("n3"), at_us=1_000, for_us=2_000),
        Partition(sources=(Address("n1"),), targets=(Address("n2"), Address("n3"))),
    )
    calm = scenario.run_scenario(scenario.Scenario("x", scenario.parse_config(SMALL.encode(), "x")), 1)
    assert scenario.run_scenario(scenario.Scenario("x", config), 1).trace_hash != calm.trace_hash


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ("sped = 3", "sped"),
        ("rewire = 7", "rewire"),
        ("neighbours = 3", "neighbours"),
        ('checks = ["twice"]', "twice"),
        ("memory = 0", "memory"),
        ("body_size = -1", "body_size"),
        ("[links]\nlatency_us = [0]", "latency_us"),
        ("[links]\nspeed = 3", "speed"),
        ('[swarm]\nkinds = ["fire"]', "fire"),
        ('[[faults]]\nkind = "fire"', "fire"),
        ('[[faults]]\nkind = "crash"\nnode = "x9"', "x9"),
        ('[[faults]]\nkind = "crash"\nnode = "n1"\nuntil = 5', "until"),
        ('[[faults]]\nkind = "storm"\nweather = { rain = 1 }', "rain"),
    ],
)
def test_what_is_wrong_is_named(added: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"scenario bad: .*{named}"):
        scenario.parse_config((SMALL + added).encode(), "bad")


@pytest.mark.parametrize("value", ["inf", "nan", "-1.0"])
def test_a_time_that_never_ends_is_refused(value: str) -> None:
    mesh = 'about = "x"\nduration_us = 1\n[population]\nkind = "mesh"\n[population.mesh.hardening]\n'
    with pytest.raises(ConfigError, match="hold_back_epochs"):
        scenario.parse_config(f"{mesh}hold_back_epochs = {value}".encode(), "bad")


def test_more_neighbours_than_a_node_takes_are_a_wrong_configuration() -> None:
    mesh = 'about = "x"\nduration_us = 1\n[population]\nkind = "mesh"\nnodes = 40\nneighbours = 24'
    with pytest.raises(ConfigError, match="neighbours_max"):
        scenario.run_scenario(scenario.Scenario("x", scenario.parse_config(mesh.encode(), "x")), 1)


def test_a_missing_scenario_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="flood-storm"):
        scenario.load_scenario("no-such-thing")


def test_what_is_not_toml_is_refused() -> None:
    for wrong in (b"= = =", b"\xff\xfe", b"about = " + b"[" * 100_000):
        with pytest.raises(ConfigError, match="scenario bad"):
            scenario.parse_config(wrong, "bad")


class Forgetful(FloodNode):
    __slots__ = ()

    def receive(self, data: bytes, source: Address, now: int) -> None:
        super().receive(data, source, now)
        if data[ID_SIZE - 1] < 64:
            self._seen.clear()


def test_a_violation_is_an_outcome_with_the_one_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flood, "FloodNode", Forgetful)
    outcome = scenario.run_scenario(scenario.load_scenario("flood"), 17)
    (violation,) = outcome.violations
    assert violation.endswith("replay: veilcast sim run flood --seed 17")
    assert "twice" in violation
    assert outcome.duration_us < scenario.load_scenario("flood").config.duration_us
    assert scenario.run_scenario(scenario.load_scenario("flood"), 17) == outcome

"""Members and a broker in the simulator: publications are delivered once, and the broker sees candidates that look
alike."""

from __future__ import annotations

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.config import FoilConfig
from veilcast.sim import scenario
from veilcast.sim.foil.mqtt_broker import MqttBrokerConfig
from veilcast.sim.foil.population import FoilPopulation


@pytest.mark.parametrize("name", ["foil-small", "foil-paper", pytest.param("foil-kills", marks=pytest.mark.all_only)])
def test_the_packaged_scenarios_deliver_everything_once(name: str) -> None:
    outcome = scenario.run_scenario(scenario.load_scenario(name), seed=1)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.facts["fakes"] > outcome.deliveries


def test_a_run_is_decided_by_its_seed() -> None:
    loaded = scenario.load_scenario("foil-small")
    assert scenario.run_scenario(loaded, seed=3).trace_hash == scenario.run_scenario(loaded, seed=3).trace_hash


def test_without_fakes_it_is_plain_publishing_with_sealed_bodies() -> None:
    loaded = scenario.load_scenario("foil-small")
    population = msgspec.structs.replace(loaded.config.population, foil=FoilConfig(k_p=0))
    config = msgspec.structs.replace(loaded.config, population=population)
    outcome = scenario.run_scenario(scenario.Scenario("plain", config), seed=1)
    assert outcome.violations == ()
    assert outcome.facts["fakes"] == 0


@pytest.mark.parametrize(
    "wrong",
    [{"members": 0}, {"publishers": 9}, {"notes": -1}, {"checks": ("nothing",)}],
)
def test_a_wrong_population_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="population"):
        FoilPopulation(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"window": 0}, {"lose_ppm": -1}, {"save_us": -1}])
def test_a_wrong_broker_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="broker"):
        MqttBrokerConfig(**wrong)

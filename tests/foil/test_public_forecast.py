"""What a public forecast finds in histories of known laws, and what its fakes have in common with the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.value_series import meter, prices, rests, sensor
from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.factory import generator_name, make_generator
from veilcast.foil.generators.movers import LEAN_MAX, SignPersistence
from veilcast.foil.generators.public_forecast import draw_quantiles, find_period, fit_forecast, season_terms
from veilcast.foil.random_source import FloatArray, IntArray
from veilcast.topics import Reals

VALUE = Reals("value", -10_000.0, 30_000.0, 16)


def config(history: FloatArray, k_p: int = 9, **more: Any) -> FoilConfig:
    attribute = AttributeConfig(history=tuple(map(float, history)), **more)
    return FoilConfig(k_p=k_p, attributes={"value": attribute})


def foil(history: FloatArray, values: FloatArray, copies: int = 20, **more: Any) -> tuple[FloatArray, IntArray]:
    generator = make_generator(VALUE, config(history, **more))
    assert generator is not None
    return foil_series(generator, np.tile(values, (copies, 1)), np.random.default_rng(7))


@pytest.mark.parametrize("period", [24, 96, 168])
def test_a_period_is_found_in_a_season_with_lasting_noise(period: int) -> None:
    rng = np.random.default_rng(period)
    noise = rng.standard_normal(2000)
    for step in range(1, 2000):
        noise[step] += 0.8 * noise[step - 1]
    values = 3 * np.sin(2 * np.pi * np.arange(2000) / period) + noise
    assert find_period(values) == period
    found = fit_forecast(values)
    assert (found.period, found.returns) == (period, True)
    level = found.expect_level(np.arange(period))
    assert np.abs(level - 3 * np.sin(2 * np.pi * np.arange(period) / period)).mean() < 0.8


@pytest.mark.parametrize("seed", range(6))
def test_prices_have_no_period_no_level_and_no_drift(seed: int) -> None:
    assert fit_forecast(prices(seed, 1500).values).is_empty


def test_a_drift_is_forecast_only_if_it_is_significant() -> None:
    moves = np.random.default_rng(3).standard_normal(1000)
    drifting = fit_forecast(np.cumsum(moves + 0.5))
    assert not drifting.returns
    assert drifting.coefficients[0] == pytest.approx(0.5, abs=0.1)
    assert fit_forecast(np.cumsum(moves + 0.03)).is_empty


def test_coefficients_are_drawn_as_the_history_allows() -> None:
    found = fit_forecast(sensor(2, 1500).values)
    drawn = found.draw_coefficients(200, 10, np.random.default_rng(1))[..., : len(found.coefficients)]
    assert np.abs(drawn.mean(axis=(0, 1)) - found.coefficients).max() < 0.02
    assert drawn.std(axis=(0, 1)) == pytest.approx(np.sqrt(np.diag(found.covariance)), rel=0.1)


def test_errors_are_drawn_beyond_the_largest_that_the_history_had() -> None:
    ordered = np.sort(np.random.default_rng(1).standard_normal(400))
    drawn = draw_quantiles(ordered, np.random.default_rng(2).random(200_000))
    assert drawn.max() > ordered[-1]
    assert drawn.min() < ordered[0]
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(ordered, [0.1, 0.5, 0.9]), abs=0.03)
    grown = np.sort(np.random.default_rng(1).gamma(2, 1, 400))
    assert draw_quantiles(grown, np.zeros(1), floor=True)[0] == grown[0]


def test_a_short_or_constant_history_is_refused() -> None:
    for wrong in (np.arange(10.0), np.ones(200), np.full(200, np.nan)):
        with pytest.raises(LocalError):
            fit_forecast(wrong)
    assert season_terms(np.arange(3), 0, 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (prices(1, 800).values, "sign-flip"),
        (sensor(1, 800).values, "forecast"),
        (np.cumsum(np.random.default_rng(1).standard_normal(800) + 0.5), "forecast"),
        (meter(1, 800).values, "counter"),
        (-meter(1, 800).values, "counter"),
        (rests(2, 800).values, "jumps"),
        (prices(1, 20).values, "sign-flip"),
    ],
)
def test_the_default_generator_is_the_one_that_fits_the_history(history: FloatArray, kind: str) -> None:
    told = config(history)
    assert generator_name(told.attributes["value"], told) == kind
    relative = config(np.abs(history) + 1, relative=True)
    assert generator_name(relative.attributes["value"], relative) == "sign-flip"


def test_fakes_of_a_season_follow_its_curve_at_the_step_at_which_events_begin() -> None:
    whole = sensor(1, 2400).values
    for first in (2000, 2007):
        phase = -1 if first == 2000 else first
        found, position = foil(whole[:2000], whole[first : first + 240], phase=phase)
        fakes = np.delete(found, position[0, 0], axis=2) if (position == position[0, 0]).all() else found
        away = np.abs(fakes.mean(axis=(0, 2)) - whole[first : first + 240])[20:]
        assert away.mean() < 0.6
    shifted, _ = foil(whole[:2000], whole[2000:2240], phase=2012)
    assert np.abs(shifted.mean(axis=(0, 2)) - whole[2000:2240])[20:].mean() > 1.0


def test_fakes_of_a_counter_never_fall_and_have_its_amounts() -> None:
    whole = meter(1, 2200).values
    found, _ = foil(whole[:2000], whole[2000:])
    amounts = np.diff(found, axis=1)
    assert (amounts >= 0).all()
    true = np.diff(whole[:2000])
    assert amounts.mean() == pytest.approx(true.mean(), rel=0.05)
    assert amounts.std() == pytest.approx(true.std(), rel=0.08)


def test_if_a_counter_is_replaced_all_fakes_begin_at_its_new_value() -> None:
    whole = meter(1, 2200).values
    after = np.concatenate([whole[2000:2010], [5.0], 5 + np.cumsum(np.diff(whole[2011:2030]))])
    found, _ = foil(whole[:2000], after)
    assert (found[:, 10] == 5.0).all()
    assert (np.diff(found[:, 10:], axis=1) >= 0).all()


def test_fakes_rest_when_the_truth_rests_and_jump_when_it_jumps() -> None:
    whole = rests(2, 2400).values
    found, _ = foil(whole[:2000], whole[2000:])
    moved = np.diff(whole[2000:]) != 0
    assert (np.diff(found, axis=1)[:, ~moved] == 0).all()
    assert (np.diff(found, axis=1)[:, moved] != 0).mean() > 0.99


def test_fakes_are_written_in_the_decimals_of_the_history() -> None:
    whole = np.round(sensor(1, 1200).values, 1)
    found, _ = foil(whole[:1000], whole[1000:])
    assert (np.round(found, 1) == found).all()


def test_a_lean_that_makes_one_path_nearly_certain_is_bounded() -> None:
    moves = 1 + 0.1 * np.random.default_rng(1).random(500)
    fitted = SignPersistence.fit(moves)
    assert fitted.constant > LEAN_MAX
    bounded = fitted.bounded(moves)
    assert bounded.same_sign_probability(moves[:-1], moves[1:]).max() < 0.9
    gentle = SignPersistence(-0.1, 0.05)
    assert gentle.bounded(moves) == gentle


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"generator": "counter", "relative": True}, "remove relative"),
        ({"generator": "jumps", "history": (1.0, 2.0) * 10}, "31 finite values"),
        ({"generator": "forecast", "history": ()}, "fitted to a history"),
        ({"deviation": 2.0}, "the generator sign-flip has no deviation; remove it"),
        ({"generator": "counter", "deviation": 2.0}, "the generator counter has no deviation"),
        ({"period": 2}, "a period has 4 steps or more"),
        ({"cache": 5000}, "cache must be 0 to 4096"),
    ],
)
def test_settings_that_cannot_work_are_refused(more: dict[str, Any], told: str) -> None:
    settings = {"history": tuple(map(float, prices(1, 100).values))} | more
    with pytest.raises(ConfigError, match=told):
        make_generator(Reals("value", 1.0, 10_000.0, 12), FoilConfig(attributes={"value": AttributeConfig(**settings)}))


def test_p3s_buckets_come_from_the_history_and_reuse_as_many_vectors_as_the_cache_has() -> None:
    """P3's Scenario III: a table of frequencies out of the past, hard buckets, and a queue of m vectors."""
    history = np.random.default_rng(1).normal(500, 20, 4000)
    domain = Reals("value", 0.0, 1000.0, 8)
    more: dict[str, Any] = {"generator": "bucketing", "buckets": "hard", "cache": 3}
    generator = make_generator(domain, config(history, 3, **more))
    assert generator is not None
    values = np.tile([500.0, 520.0, 500.0, 480.0, 620.0, 500.0], (400, 1))
    found, position = foil_series(generator, values, np.random.default_rng(2))
    assert (np.take_along_axis(found, position[:, :, None], axis=2)[:, :, 0] == values).all()
    assert (np.sort(found[:, 0]) == np.sort(found[:, 2])).all(), "a cached vector returns"
    buckets = np.quantile(history, [0.25, 0.5, 0.75])
    one_in_each = [sorted(np.searchsorted(buckets, each)) == [0, 1, 2, 3] for each in found[:, 0]]
    assert np.mean(one_in_each) > 0.6, "but for cells on a boundary"
    fresh = make_generator(domain, config(history, 3, **(more | {"cache": 0})))
    assert fresh is not None
    again, _ = foil_series(fresh, values, np.random.default_rng(2))
    assert (np.sort(again[:, 0]) == np.sort(again[:, 2])).all(axis=1).mean() < 0.1

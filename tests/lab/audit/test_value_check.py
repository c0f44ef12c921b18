"""What a check of a series says: bounds held and exceeded, both views, and the cause by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.value_series import KINDS, ValueSeries, meter, prices, rests, sensor
from veilcast.errors import ConfigError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.lab.audit.value_check import CheckPlan, ValueCheck, check_values
from veilcast.topics import Integers, Reals

SMALL = CheckPlan(length=60, windows=24, copies=4)


def check(
    series: ValueSeries, past: int, *, cells: float = 20, plan: CheckPlan = SMALL, k_p: int = 9, **more: Any
) -> ValueCheck:
    """The first `past` values are the member's history; a typical change is `cells` cells of the broker."""
    low, high = series.bounds()
    bits = min(16, int(np.ceil(np.log2((high - low) * cells / series.typical))))
    domain = Reals("value", low, low + (1 << bits) * series.typical / cells, bits)
    if domain.high < high:
        domain = Reals("value", low, high, bits)
    attribute = AttributeConfig(history=tuple(series.values[:past].tolist()), **more)
    return check_values(series.values[past:], domain, FoilConfig(k_p=k_p, attributes={"value": attribute}), plan)


def names(found: ValueCheck) -> set[str]:
    return {cause.name for cause in found.causes}


def bounds(found: ValueCheck) -> bool:
    return found.exceeds(1.3 * found.chance, 0.25)


def test_prices_with_a_history_are_hidden_and_without_one_the_check_says_what_is_missing() -> None:
    found = check(prices(1, 4000), 2000)
    assert (found.generator, found.chance, bounds(found)) == ("sign-flip", 0.1, False)
    assert not names(found) & {"drift", "season", "level", "lean", "cells", "history"}
    assert "history" in names(check(prices(1, 2000), 0))


@pytest.mark.parametrize(
    ("series", "cause", "attacker"),
    [(sensor(6, 2000), "season", "expected"), (meter(1, 2000), "drift", "above"), (rests(1, 2000), "rests", "most")],
)
def test_what_sign_flip_cannot_hide_is_refused_with_its_cause(series: ValueSeries, cause: str, attacker: str) -> None:
    found = check(series, 0, generator="sign-flip")
    assert bounds(found)
    assert cause in names(found)
    message, value = found.by_slot.mean_rates()[attacker]
    assert max(message, value) > 0.3, "the attacker that knows what is expected"
    assert found.shuffled.mean_rates()[attacker] == pytest.approx((message, value)), "needs no slots"


def test_the_advice_is_what_is_still_to_be_done() -> None:
    grown = meter(1, 2000)
    texts = []
    ways: tuple[tuple[int, dict[str, Any]], ...] = ((0, {}), (1000, {"generator": "sign-flip"}), (20, {}))
    for past, more in ways:
        found = check(grown, past, **more)
        texts += [cause.text.partition("; ")[2] for cause in found.causes if cause.name == "drift"]
    assert texts == [
        'give past values: history = "past.csv" under [foil]',
        'leave "generator" out, and the past values choose one that does',
        "the past values are too few to tell; give more",
    ]


def test_a_lean_that_would_leave_one_path_is_named() -> None:
    """A value that turns at every step."""
    rng = np.random.default_rng(1)
    turning = ValueSeries(100 + np.cumsum((-1.0) ** np.arange(2000) * rng.gamma(4, 0.25, 2000)), 1.0)
    assert "lean" in names(check(turning, 1000, generator="sign-flip"))


def test_cells_that_are_wider_than_moves_are_named_and_the_value_is_known() -> None:
    found = check(prices(2, 3000), 1500, cells=0.3)
    assert {"cells", "values"} & names(found)
    assert bounds(found)


def test_round_values_in_fine_cells_are_named() -> None:
    values = np.round(prices(3, 3000).values / 0.5) * 0.5
    values[::3] = np.round(values[::3] + 0.13, 2)
    found = check_values(values[1500:], Reals("value", 0, 655.36, 16), _with_past(values[:1500]), SMALL)
    assert "rounding" in names(found)


def test_a_short_past_and_one_of_other_times_are_named() -> None:
    assert "history" in names(check(prices(1, 1200), 200))
    values = prices(1, 4000).values
    values[2000:] = values[2000] + 4 * (values[2000:] - values[2000])
    assert "history" in names(check(ValueSeries(values, 1.0), 2000))


def test_the_same_seed_gives_the_same_check_and_shuffling_hides_slots() -> None:
    one, two = (check(sensor(1, 2000), 1000) for _ in range(2))
    assert one.by_slot.mean_rates() == two.by_slot.mean_rates()
    assert {"turns", "trained", "errors"} <= set(one.by_slot.mean_rates())
    assert not {"turns", "trained", "errors"} & set(one.shuffled.mean_rates())
    assert one.candidates.shape == (60, 10)
    assert (one.candidates == one.truth[:, None]).any(axis=1).all()


def test_whole_numbers_are_seen_in_their_cells() -> None:
    values = np.round(prices(1, 1500).values * 4)
    attribute = AttributeConfig(history=tuple(values[:700].tolist()))
    config = FoilConfig(k_p=3, attributes={"value": attribute})
    found = check_values(values[700:], Integers("value", 0, 4095, 12), config, SMALL)
    assert found.chance == 0.25
    assert set(np.unique(found.candidates % 1)) == {0.5}


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ConfigError, match="48 or more"):
        check(prices(1, 40), 0)
    with pytest.raises(ConfigError, match="has no fakes"):
        check(prices(1, 400), 0, k_p=0)


@pytest.mark.all_only
@pytest.mark.parametrize("kind", KINDS)
def test_on_average_every_kind_of_series_is_hidden_by_the_default_of_its_history(kind: str) -> None:
    """Nine fakes, six owners with eight thousand past values: the true message at most 1.3 times as often as by a
    guess, the true value in a quarter of events at most."""
    found = [check(KINDS[kind](seed, 12_000), 8000, plan=CheckPlan()) for seed in range(201, 207)]
    for seen in [[each.by_slot for each in found], [each.shuffled for each in found]]:
        assert np.mean([each.message.rate for each in seen]) <= 0.13
        assert np.mean([each.value.rate for each in seen]) <= 0.25


def _with_past(values: np.ndarray[Any, Any]) -> FoilConfig:
    return FoilConfig(attributes={"value": AttributeConfig(history=tuple(values.tolist()))})

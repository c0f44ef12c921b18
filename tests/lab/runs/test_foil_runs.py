"""Runs of foiling: what breaks, what holds, and that nothing of a day is known before it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.foil_params import FoilGuesses
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.runs.foil import guesses, true_streams
from veilcast.lab.runs.table import ENGINES

Found = dict[tuple[str, str], float]


def of(kind: Any = "guesses", **given: Any) -> Found:
    params = make_params(f"foil.{kind}", given)
    return {(one.attack, one.metric): one.value for one in ENGINES["kernel"](params, 1, None)}


@cache
def noisy() -> Found:
    return of(foil="noise", fakes=3, streams=12, length=300)


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three days of prices, each with a volatility of its own."""
    rng = np.random.default_rng(5)
    days = [
        np.round(50 + np.cumsum(rng.standard_normal(length) * size), 4) + 50
        for length, size in ((120, 0.02), (90, 0.05), (130, 0.03))
    ]
    true_streams._days.cache_clear()
    traded = [1e4 * np.abs(np.diff(day, prepend=day[0])) for day in days]
    monkeypatch.setattr(true_streams, "_read", lambda source: (tuple(days), tuple(traded), true_streams.CENT))
    yield
    true_streams._days.cache_clear()


def test_noise_leaves_the_truth_in_the_middle() -> None:
    found = noisy()
    assert found["medoid", "identified"] == pytest.approx(0.43, abs=0.03)
    assert found["best", "identified"] >= found["medoid", "identified"] - 0.03
    assert found["best", "low"] <= found["best", "largest"] <= found["best", "high"]
    assert found["best", "identified"] <= found["best", "largest"] + 1e-9
    assert found["", "chance"] == found["uniform", "identified"] == 0.25


def test_trajectories_by_the_right_law_leave_nothing() -> None:
    found = of(foil="gaussian", fakes=3, streams=300, length=40)
    held = {attack: value for (attack, metric), value in found.items() if metric == "identified"}
    assert max(held.values()) < 0.25 + 0.06, held
    assert found["", "deviation"] > 5 * noisy()["", "deviation"]


def test_all_makers_foil_the_same_truth() -> None:
    one, other = (
        next(guesses.foil_streams(FoilGuesses(foil=foil, fakes=fakes, streams=2, length=9), 3, None))  # type: ignore[arg-type]
        for foil, fakes in (("noise", 2), ("student", 5))
    )
    assert np.array_equal(one.values, other.values)
    assert one.candidates.shape == (2, 9, 3)
    for part in (one, other):
        assert np.array_equal(np.take_along_axis(part.candidates, part.position[:, :, None], 2)[:, :, 0], part.values)


@pytest.mark.usefixtures("minutes")
def test_the_past_of_a_day_is_all_the_others_and_no_window_reaches_over_a_night() -> None:
    params = FoilGuesses(foil="student", truth="goog", length=60, copies=2)
    parts = list(true_streams.draw_truth(params, np.random.default_rng(1), None))
    assert [len(part.values) for part in parts] == [4, 2, 4]
    assert [len(part.past.moves) for part in parts] == [218, 248, 208]
    spreads = [part.past.spread for part in parts]
    assert spreads[1] < spreads[0], "the most restless day is not in its own past"
    assert all((part.values == np.round(part.values)).all() for part in parts), "in whole cents"


@pytest.mark.usefixtures("minutes")
@pytest.mark.parametrize("foil", ["noise", "window", "student", "history", "sign-flip", "moran-leaning", "moran"])
def test_every_maker_foils_real_prices_in_cents(foil: str) -> None:
    params = FoilGuesses(foil=foil, truth="goog", fakes=4, length=60, public=10 if "moran" in foil else 0)  # type: ignore[arg-type]
    for part in guesses.foil_streams(params, 2, None):
        assert (part.candidates == np.round(part.candidates)).all()
    found = {(one.attack, one.metric): one.value for one in guesses.run(params, 2, None)}
    assert found["best", "low"] <= found["best", "high"] <= 1
    assert found["", "deviation"] < 10


@pytest.mark.usefixtures("minutes")
def test_prices_are_brought_to_a_level_and_to_a_size_of_moves() -> None:
    params = FoilGuesses(foil="noise", truth="goog", length=60, price=615, moves=0.167)
    days = true_streams._days(true_streams._PriceSource("goog", None, "", 10), params.price, params.moves, params.cell)
    assert not days.unit
    assert np.concatenate(days.prices).mean() == pytest.approx(615)
    assert np.abs(np.concatenate([np.diff(day) for day in days.prices])).mean() == pytest.approx(0.167)
    with pytest.raises(ConfigError, match="no day of goog has 500 steps"):
        guesses.run(FoilGuesses(foil="noise", truth="goog", length=500), 1, None)


@pytest.mark.usefixtures("minutes")
def test_in_cells_lineages_go_on_beneath_and_who_trains_is_shown_other_days() -> None:
    params = FoilGuesses(foil="leaning", truth="goog", fakes=4, length=60, cell=0.1, training=2)
    parts = list(guesses.foil_streams(params, 2, None))
    assert all((part.candidates % 10 == 0).all() and (part.values % 10 == 0).all() for part in parts)
    assert all((np.abs(np.diff(part.candidates, axis=1)) > 0).mean() < 0.9 for part in parts)
    weights = [part.model.fitted.weights for part in parts]
    assert not np.array_equal(weights[0], weights[1]), "each day by who learned from the others"
    found = {(one.attack, one.metric): one.value for one in guesses.run(params, 2, None)}
    assert 0 <= found["trained", "identified"] <= 1
    with pytest.raises(ConfigError, match="training must not be negative"):
        FoilGuesses(foil="noise", training=-1)


@pytest.mark.usefixtures("minutes")
def test_who_sees_the_volume_finds_the_truth_among_fakes_that_are_calm_by_themselves() -> None:
    given = {"truth": "goog", "fakes": 3, "length": 60, "copies": 40, "guessers": ("restless",)}
    calm = of(foil="student", **given)
    assert calm["restless", "identified"] > 0.8, "here volume goes with moves as it never does outside"
    flips = of(foil="sign-flip", **given)
    assert flips["restless", "identified"] == pytest.approx(0.25, abs=0.05)


def test_who_sees_the_questions_of_a_reader_finds_what_no_fake_hides() -> None:
    given = {"foil": "gaussian", "fakes": 4, "streams": 60, "length": 60, "guessers": ("confirmation",)}
    asked, all_asked = of(**given, asking=0.3), of(**given, asking=1.0)
    assert asked["confirmation", "identified"] > 0.28 > 1.3 * asked["", "chance"]
    assert all_asked["confirmation", "identified"] > 1.5 * all_asked["", "chance"]
    with pytest.raises(ConfigError, match="asking must be a share"):
        FoilGuesses(foil="noise", asking=1.5)


def test_who_trains_finds_noise() -> None:
    found = of(foil="noise", fakes=3, streams=10, length=60, training=4, noise=10.0, guessers=("trained", "smoother"))
    assert found["smoother", "identified"] > 0.7
    assert found["trained", "identified"] < 0.7, "slots of noise are no paths"


def test_branching_hides_what_was_public_and_uniform_parents_do_not() -> None:
    right = {"foil": "moran", "kind": "pedigrees", "fakes": 3, "streams": 3000, "length": 80}
    assert of(**right, public=15)["told", "identified"] == pytest.approx(0.26, abs=0.02)
    assert of(**right, public=15, rate=0.0)["told", "identified"] == 1
    assert of(**right, rate=1.6)["counting", "identified"] == pytest.approx(0.25, abs=0.03)
    naive = of(**right | {"foil": "naive"}, rate=1.6)
    assert naive["counting", "identified"] == pytest.approx(0.69, abs=0.03)


def test_what_foiling_sends_is_bounded_and_grows_with_the_ranges() -> None:
    given = {"foil": "noise", "kind": "overhead", "fakes": 4, "false_interests": 2, "streams": 2, "length": 60}
    narrow, wide = of(**given, width=0.02), of(**given, width=1.0)
    assert narrow["", "notified"] <= narrow["", "bound"] * 1.1
    assert narrow["", "foiled"] < narrow["", "encrypted"] == wide["", "encrypted"] == 101
    assert wide["", "plain"] == 101
    assert wide["", "foiled"] > narrow["", "foiled"]


def test_levelled_categories_are_uniform_to_who_knows_nothing_and_open_to_who_knows_the_law() -> None:
    found = of("categories", foil="entropy", fakes=13, streams=2, length=800)
    assert found["", "smallest_k"] == 13
    assert found["", "entropy"] > 5.97
    assert found["odds", "identified"] > 0.4 > 5 * found["", "chance"]
    few = of("categories", foil="entropy", law="zipf-2", fakes=3, streams=2, length=800)
    assert few["counts", "identified"] == pytest.approx(0.88, abs=0.04)


def test_hard_buckets_leak_and_even_ones_do_not() -> None:
    given = {"foil": "bucketing", "kind": "categories", "fakes": 1, "categories": 6, "cache": 0, "length": 2000}
    assert of(**given, buckets="hard")["odds", "identified"] == pytest.approx(0.592, abs=0.02)
    assert of(**given)["odds", "identified"] == pytest.approx(0.5, abs=0.02)


def test_dependents_betray_the_truth_unless_they_are_drawn_given_their_primary() -> None:
    given = {"kind": "pairs", "streams": 30}
    assert of(**given, dependents="regression")["residual", "identified"] == 1
    assert of(**given, dependents="alone")["density", "identified"] == pytest.approx(0.52, abs=0.03)
    assert of(**given)["density", "identified"] == pytest.approx(0.25, abs=0.02)


def test_the_same_run_of_foiling_gives_the_same_measures() -> None:
    for given in ({"foil": "leaning"}, {"foil": "window", "truth": "ar1"}, {"foil": "moran", "public": 5}):
        assert of(**given, streams=3, length=40) == of(**given, streams=3, length=40)


@pytest.mark.parametrize(
    "given",
    [
        {"fakes": 0},
        {"noise": 0.0},
        {"lasting": 1.5},
        {"cell": -1.0},
        {"truth": "codes"},
        {"foil": "entropy"},
        {"kind": "pedigrees", "foil": "sign-flip"},
        {"kappa": 0.5},
        {"guessers": ("nobody",)},
    ],
)
def test_what_foiling_does_not_know_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        of(**{"foil": "noise", "streams": 2, "length": 20} | given)

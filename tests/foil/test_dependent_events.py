"""Events of several attributes: the paper's regression reveals the truth, a conditional draw does not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from support.foil_generators import rank_of_truth, unevenness
from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.categories import EntropyFakes, Pmf
from veilcast.foil.generators.dependent import ConditionalTable, DependentEvents, LinearLaw
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.window import WindowFakes

STREAMS = 6000


def pairs(rho: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    primary = rng.standard_normal((STREAMS, 1))
    dependent = rho * primary + np.sqrt(1 - rho**2) * rng.standard_normal((STREAMS, 1))
    return np.stack([primary, dependent], axis=2)


def rank_of_residual(dependent: LinearLaw, seed: int) -> npt.NDArray[np.int64]:
    """Rank of the truth by its distance from the line, the farthest first."""
    rng = np.random.default_rng(seed)
    candidates, position = foil_series(DependentEvents(WindowFakes(3, 1.0), [dependent]), pairs(0.8, rng), rng)
    distance = np.abs(candidates[:, 0, :, 1] - 0.8 * candidates[:, 0, :, 0])
    return rank_of_truth(-distance, position[:, 0], rng)


def test_dependents_by_regression_reveal_the_truth_each_time() -> None:
    assert (rank_of_residual(LinearLaw(0.8, 0, 0), 1) == 0).all()


def test_dependents_drawn_given_the_primary_reveal_nothing() -> None:
    assert unevenness(rank_of_residual(LinearLaw(0.8, 0, 0.6), 2), 4) < 4.5


def test_dependents_drawn_independently_of_the_primary_reveal_the_truth() -> None:
    assert unevenness(rank_of_residual(LinearLaw(0, 0, 1), 3), 4) > 15


def test_a_line_is_fitted_to_a_history() -> None:
    history = pairs(0.8, np.random.default_rng(4))[:, 0]
    line = LinearLaw.fit(history[:, 0], history[:, 1])
    assert (line.slope, line.intercept, line.deviation) == pytest.approx((0.8, 0, 0.6), abs=0.03)


def test_categories_follow_the_table_of_their_primary() -> None:
    table = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    rng = np.random.default_rng(5)
    primary = rng.integers(0, 2, (STREAMS, 4))
    drawn = ConditionalTable(table).draw(primary, rng)
    for code in (0, 1):
        shares = np.bincount(drawn[primary == code], minlength=3) / np.sum(primary == code)
        assert shares == pytest.approx(table[code], abs=0.02)


def test_dependents_stay_in_their_own_domain() -> None:
    rng = np.random.default_rng(8)
    period = NumericDomain(0, 5, decimals=1)
    values = np.tile([1.0, 2.5], (50, 4, 1))
    candidates, _ = foil_series(DependentEvents(NoiseFakes(3, 1), [LinearLaw(3, 0, 2, period)]), values, rng)
    period.check(candidates[..., 1])


def test_events_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(9)
    generator = DependentEvents(NoiseFakes(3, 1), [LinearLaw(1, 0, 1)])
    for wrong in (np.zeros((4, 3)), np.zeros(4), np.array([[1.0, np.nan]] * 4)):
        with pytest.raises(LocalError):
            generator.next(generator.begin(4, rng), wrong, rng)
    with pytest.raises(ConfigError):
        LinearLaw(1, 0, -1)
    for primary in (np.ones(5), np.array([1.0, 2.0]), np.array([1.0, 2.0, np.nan])):
        with pytest.raises(LocalError):
            LinearLaw.fit(primary, np.arange(float(len(primary))))


def test_impossible_dependent_values_are_refused() -> None:
    rng = np.random.default_rng(10)
    numbers = DependentEvents(NoiseFakes(3, 1), [LinearLaw(1, 0, 1, NumericDomain(0, 5, decimals=1))])
    for number in (-1.0, 0.25, np.inf):
        with pytest.raises(LocalError):
            foil_series(numbers, np.array([[[1.0, number]]]), rng)
    codes = DependentEvents(EntropyFakes(2, Pmf(np.ones(2))), [ConditionalTable([[0.5, 0.5, 0], [0.5, 0.5, 0.5]])])
    foil_series(codes, np.array([[[1, 2]]]), rng)
    for event in ([0, 2], [1, 3], [2, 0]):
        with pytest.raises(LocalError):
            foil_series(codes, np.array([[event]]), rng)
    with pytest.raises(LocalError):
        ConditionalTable([[0.5, 0.5]]).draw(np.array([1]), rng)

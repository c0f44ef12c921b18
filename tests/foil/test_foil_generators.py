"""Properties of every generator: the truth is in the reported slot, at random, and bad values are refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.foil_generators import GENERATOR_CASES, GeneratorCase, K, unevenness
from veilcast.errors import LocalError
from veilcast.foil.generators.base import FAKES_MAX, check_fakes, foil_series, place_truth
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.random_source import SecretRandom

every_case = pytest.mark.parametrize("case", GENERATOR_CASES.values(), ids=GENERATOR_CASES.keys())


def taken(candidates: npt.NDArray[Any], position: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    at: npt.NDArray[Any] = candidates[np.arange(len(candidates))[:, None], np.arange(candidates.shape[1]), position]
    return at


@every_case
def test_the_truth_is_in_the_reported_slot(case: GeneratorCase) -> None:
    rng = np.random.default_rng(2)
    values = case.values(50, 20, rng)
    candidates, position = foil_series(case.generator, values, rng)
    assert candidates.shape == (50, 20, K + 1, *values.shape[2:])
    assert candidates.dtype == values.dtype
    assert np.array_equal(taken(candidates, position), values)


@every_case
def test_every_slot_holds_the_truth_equally_often(case: GeneratorCase) -> None:
    """Streams are independent, so positions at any one step are independent draws."""
    rng = np.random.default_rng(3)
    _, position = foil_series(case.generator, case.values(4000, 5, rng), rng)
    for step in range(5):
        assert unevenness(position[:, step], K + 1) < 4.5


@every_case
def test_next_does_not_change_its_input_state(case: GeneratorCase) -> None:
    rng = np.random.default_rng(4)
    values = case.values(10, 4, rng)
    state = case.generator.begin(10, rng)
    for step in range(3):
        state, _, _ = case.generator.next(state, values[:, step], rng)
    first = case.generator.next(state, values[:, 3], np.random.default_rng(5))
    second = case.generator.next(state, values[:, 3], np.random.default_rng(5))
    assert np.array_equal(first[1], second[1])
    assert np.array_equal(first[2], second[2])


@every_case
def test_a_series_equals_its_single_steps(case: GeneratorCase) -> None:
    values = case.values(7, 6, np.random.default_rng(6))
    rng = np.random.default_rng(7)
    state, steps = case.generator.begin(7, rng), []
    for step in range(6):
        state, candidates, _ = case.generator.next(state, values[:, step], rng)
        steps.append(candidates)
    whole, _ = foil_series(case.generator, values, np.random.default_rng(7))
    assert np.array_equal(whole, np.stack(steps, axis=1))


@every_case
def test_a_single_stream_with_secret_randomness_is_foiled(case: GeneratorCase) -> None:
    values = case.values(1, 10, np.random.default_rng(8))
    candidates, position = foil_series(case.generator, values, SecretRandom(random.Random(8).randbytes))
    assert np.array_equal(taken(candidates, position), values)
    if not case.codes:
        assert (candidates[0, -1] != candidates[0, -1, position[0, -1]]).any(), "some fake differs from the truth"


@every_case
def test_a_series_that_never_changes_is_foiled(case: GeneratorCase) -> None:
    rng = np.random.default_rng(9)
    values = np.repeat(case.values(5, 1, rng), 12, axis=1)
    candidates, position = foil_series(case.generator, values, rng)
    assert np.array_equal(taken(candidates, position), values)


@every_case
def test_values_of_another_number_of_streams_are_refused(case: GeneratorCase) -> None:
    rng = np.random.default_rng(10)
    with pytest.raises(LocalError):
        case.generator.next(case.generator.begin(3, rng), case.values(4, 1, rng)[:, 0], rng)


@every_case
def test_invalid_numbers_and_values_outside_the_domain_are_refused(case: GeneratorCase) -> None:
    rng = np.random.default_rng(11)
    values = case.values(4, 1, rng)[:, 0]
    for wrong in (6, -1) if case.codes else (np.nan, np.inf):
        state, spoilt = case.generator.begin(4, rng), values.copy()
        spoilt[1] = wrong
        with pytest.raises(LocalError):
            case.generator.next(state, spoilt, rng)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=40)
def test_place_truth_keeps_all_candidates_and_puts_the_truth_where_told(streams: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    candidates = rng.standard_normal((streams, k + 1))
    position, places = rng.integers(0, k + 1, (2, streams))
    order = place_truth(candidates, position, places, rng)
    rows = np.arange(streams)
    assert np.array_equal(order[rows, places], candidates[rows, position])
    assert np.array_equal(np.sort(order), np.sort(candidates))


def test_fakes_are_in_a_fresh_order_each_time_so_that_none_can_be_followed() -> None:
    """The truth goes to slot 0; the target of slot 1 must not depend on its origin."""
    rng = np.random.default_rng(12)
    candidates = np.tile(np.arange(4), (6000, 1))
    zero = np.zeros(6000, dtype=np.int64)
    first, second = (place_truth(candidates, zero, zero, rng) for _ in range(2))
    pairs = (np.argmax(first == 1, axis=1) - 1) * 3 + np.argmax(second == 1, axis=1) - 1
    assert unevenness(pairs, 9) < 4.5


def test_events_of_several_attributes_stay_whole_when_placed() -> None:
    rng = np.random.default_rng(13)
    candidates = np.stack([np.tile(np.arange(4), (20, 1))] * 2, axis=2)
    order = place_truth(candidates, np.zeros(20, dtype=np.int64), rng.integers(0, 4, 20), rng)
    assert np.array_equal(order[:, :, 0], order[:, :, 1])


def test_an_invalid_place_is_refused() -> None:
    for places in (np.array([0, 4]), np.array([-1, 0]), np.array([0])):
        with pytest.raises(LocalError):
            place_truth(np.zeros((2, 4)), np.zeros(2, dtype=np.int64), places, np.random.default_rng(1))


def test_the_number_of_fakes_is_bounded() -> None:
    check_fakes(FAKES_MAX)
    for k in (0, FAKES_MAX + 1):
        with pytest.raises(LocalError):
            NoiseFakes(k, 1)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from support.coalition_view import make_case, tells_nothing_of_shuffled_labels
from veilcast.errors import ConfigError
from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier, fit_binned, fit_linear
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.measure.ranking import auc

Fit = Callable[[NDArray[np.float64], NDArray[np.bool_]], LinearClassifier | BinnedClassifier]
FITS: list[Fit] = [fit_linear, fit_binned]


def sample(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The first feature tells in which direction, the second only how far from the middle; the third nothing."""
    values = rng.normal(size=(rows, 3))
    logits = 2 * values[:, 0] + 2 * np.abs(values[:, 1]) - 2
    return values, rng.random(rows) < 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize(("fit", "least"), [(fit_linear, 0.78), (fit_binned, 0.86)])
def test_each_classifier_finds_the_effects_of_its_form(fit: Fit, least: float) -> None:
    rng = np.random.default_rng(1)
    found = fit(*sample(rng, 4000))
    values, labels = sample(rng, 4000)
    assert auc(found.scores(values), labels) > least


def test_only_bins_find_an_effect_that_is_not_monotonous() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4000, 1))
    labels = np.abs(values[:, 0]) > 1
    assert auc(fit_linear(values, labels).scores(values), labels) < 0.6
    assert auc(fit_binned(values, labels).scores(values), labels) > 0.95


def test_a_value_that_many_share_has_a_bin_to_itself() -> None:
    values = np.repeat([0.0, 1.0, 2.0], 50)[:, None]
    labels = values[:, 0] == 1
    assert auc(fit_binned(values, labels).scores(values), labels) == 1


@pytest.mark.parametrize("fit", FITS)
def test_a_feature_that_never_changes_does_no_harm(fit: Fit) -> None:
    rng = np.random.default_rng(3)
    values, labels = sample(rng, 500)
    values[:, 2] = 7
    assert np.isfinite(fit(values, labels).scores(values)).all()


@pytest.mark.parametrize("fit", FITS)
def test_there_must_be_something_to_learn(fit: Fit) -> None:
    for labels in (np.ones(4, np.bool_), np.zeros(4, np.bool_), np.array([True, False])):
        with pytest.raises(ConfigError):
            fit(np.zeros((4, 2)), labels)
    with pytest.raises(ConfigError):
        fit_binned(np.zeros((4, 2)), np.array([True, False] * 2), bins=1)


def rows(name: str, seed: int, epochs: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    world = make_case(name, seed, epochs)
    belief = infer_beliefs(build_group_tests(world.people.graph, world.view), 500, 0.1)
    return extract_node_features(world.people.graph, world.view, belief)[world.candidates], world.labels()


@pytest.mark.parametrize("fit", FITS)
def test_trained_on_some_worlds_they_find_the_subscribers_of_others(fit: Fit) -> None:
    """The positive control; and the null one, of the same scores and of a training with shuffled labels."""
    training = [rows("BL", 200 + seed, 20) for seed in range(8)]
    judged = [rows("BL", 300 + seed, 20) for seed in range(6)]
    values, labels = np.vstack([row for row, _ in training]), np.concatenate([label for _, label in training])
    found = fit(values, labels)
    assert np.mean([auc(found.scores(row), label) for row, label in judged]) > 0.83
    assert tells_nothing_of_shuffled_labels(found.scores(judged[0][0]), judged[0][1])
    rng = np.random.default_rng(5)
    lost = fit(values, rng.permutation(labels))
    assert tells_nothing_of_shuffled_labels(lost.scores(judged[0][0]), judged[0][1])


@pytest.mark.parametrize("fit", FITS)
def test_how_sums_are_rounded_does_not_show_in_the_weights(fit: Fit) -> None:
    """Rows in another order are the same question, but every sum of it is rounded elsewhere."""
    rng = np.random.default_rng(6)
    values, labels = sample(rng, 4000)
    order = rng.permutation(len(labels))
    assert np.allclose(fit(values, labels).weights, fit(values[order], labels[order]).weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fit", FITS)
def test_the_weights_lose_least(fit: Fit) -> None:
    """The loss grows in every direction from them, by a small step of each weight."""
    values, labels = sample(np.random.default_rng(7), 300)
    found = fit(values, labels)

    def loss(weights: NDArray[np.float64]) -> float:
        logits = replace(found, weights=weights).scores(values)
        best = min(
            float(np.sum(np.logaddexp(0, logits + shift) - labels * (logits + shift)))
            for shift in np.linspace(-4, 4, 1601)
        )
        return best + 3.0 * float(np.sum(weights**2))

    least = loss(found.weights)
    for step in (0.05, -0.05):
        for at in range(len(found.weights)):
            moved = found.weights.copy()
            moved[at] += step
            assert loss(moved) > least + 1e-3

"""Two classifiers that an attacker trains on networks of its own, whose truth it knows, and applies to others.

Both are logistic regressions with a quadratic penalty. The linear one weighs the features, each scaled to mean 0 and
variance 1. The binned one cuts every feature into bins of equal counts and gives each bin a weight: an additive model
of any shape, which also finds effects that are not monotonous. A cover that is drawn again in each epoch, for example,
is seen more often than an idle node and less often than a subscriber.

Training and test use different runs. A row of a run never helps to judge another row of the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.special import expit

from veilcast.errors import ConfigError


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """One weight for each feature."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    def scores(self, observations: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much it looks like a subscriber, by row."""
        return (observations - self.mean) / self.scale @ self.weights


@dataclass(frozen=True, eq=False)
class BinnedClassifier:
    """One weight for each bin of each feature."""

    edges: tuple[NDArray[np.float64], ...]
    weights: NDArray[np.float64]

    def scores(self, observations: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much it looks like a subscriber, by row."""
        return np.asarray(_in_bins(observations, self.edges) @ self.weights, np.float64)


class ClassifierPair(NamedTuple):
    """Both, trained on the same rows."""

    linear: LinearClassifier
    binned: BinnedClassifier


def fit_linear(observations: NDArray[np.float64], labels: NDArray[np.bool_]) -> LinearClassifier:
    """Fit to rows of features; `labels` marks the subscribers' rows."""
    _check(observations, labels)
    mean, spread = observations.mean(axis=0), observations.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    return LinearClassifier(mean, scale, _weights((observations - mean) / scale, labels))


def fit_binned(observations: NDArray[np.float64], labels: NDArray[np.bool_], bins: int = 12) -> BinnedClassifier:
    """Fit to rows of features, with at most `bins` bins for each."""
    _check(observations, labels)
    if bins < 2:
        raise ConfigError(f"a feature has at least 2 bins, not {bins}")
    shares = np.arange(1, bins) / bins
    edges = tuple(np.unique(np.quantile(column, shares)) for column in observations.T)
    return BinnedClassifier(edges, _weights(_in_bins(observations, edges), labels))


def _check(observations: NDArray[np.float64], labels: NDArray[np.bool_]) -> None:
    if observations.ndim != 2 or labels.shape != observations.shape[:1]:
        raise ConfigError("observations are rows of features, with a label for each")
    if labels.all() or not labels.any():
        raise ConfigError("there is nothing to learn where all labels are the same")


def _in_bins(observations: NDArray[np.float64], edges: tuple[NDArray[np.float64], ...]) -> csr_array:
    """A column for each bin, 1 for the rows in it. A value that many rows share is an edge and has a bin of its own."""
    rows, features = observations.shape
    first = np.cumsum([0, *(2 * len(cuts) + 1 for cuts in edges)])
    bins = np.empty((rows, features), np.int64)
    for feature, (column, cuts) in enumerate(zip(observations.T, edges, strict=True)):
        bins[:, feature] = np.searchsorted(cuts, column, "left") + np.searchsorted(cuts, column, "right")
    places = (np.ones(bins.size), (bins + first[:-1]).ravel(), np.arange(rows + 1) * features)
    return csr_array(places, shape=(rows, int(first[-1])))


def _weights(columns: NDArray[np.float64] | csr_array, labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights of least penalised log-loss. The intercept does not change the order of rows and is not returned.

    Newton's method, until a step moves nothing that counts. The loss is convex, so the end does not depend on the way
    there, and a sum that another processor rounds differently moves a weight in its last digits alone.
    """
    goal = labels.astype(np.float64)
    rows, features = columns.shape
    penalty = np.append(np.full(features, 2 * _PENALTY), 0.0)
    parameters = np.zeros(features + 1)
    logits = np.zeros(rows)
    loss = _loss(logits, goal, parameters)
    for _ in range(_ROUNDS):
        likely = expit(logits)
        error, spread = likely - goal, likely * (1 - likely)
        slope = np.append(columns.T @ error, error.sum()) + penalty * parameters
        step = np.linalg.solve(_curvature(columns, spread) + np.diag(penalty), -slope)
        for share in 0.5 ** np.arange(_HALVINGS):
            tried = parameters + share * step
            logits = columns @ tried[:-1] + tried[-1]
            reached = _loss(logits, goal, tried)
            if reached <= loss:
                break
        parameters, loss = tried, reached
        if np.abs(step).max() < _SETTLED:
            break
    return np.asarray(parameters[:-1], np.float64)


def _loss(logits: NDArray[np.float64], goal: NDArray[np.float64], parameters: NDArray[np.float64]) -> float:
    return float(np.sum(np.logaddexp(0, logits) - goal * logits) + _PENALTY * np.sum(parameters[:-1] ** 2))


def _curvature(columns: NDArray[np.float64] | csr_array, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """The second derivative of the loss without its penalty; the intercept's row and column are the last."""
    if isinstance(columns, csr_array):
        weighed = (diags_array(spread) @ columns).tocsr()
        inner = (columns.T @ weighed).toarray()
    else:
        weighed = columns * spread[:, None]
        inner = columns.T @ weighed
    edge = np.asarray(weighed.sum(axis=0)).ravel()
    return np.asarray(np.block([[inner, edge[:, None]], [edge[None, :], spread.sum()]]), np.float64)


_PENALTY: Final = 3.0
_ROUNDS: Final = 60
_HALVINGS: Final = 30
_SETTLED: Final = 1e-9

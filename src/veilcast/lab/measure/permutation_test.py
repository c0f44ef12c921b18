"""Can events be told from observations? A classifier, and its success by chance.

Observations of one time are correlated: a machine that is busy for a second delays all cells of that second. So samples
are split by phase, never within one, and the success by chance comes from permuting the labels of whole phases. The
classifier learns from one half of the phases and is judged on the other. If labels mean nothing, every permutation of
the labels of the other half was as likely as the true one. The verdict is the area under the curve (0.5 tells nothing,
1 everything), and the interval that holds it for 95 of 100 permutations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from veilcast.lab.attack.classifiers import fit_binned


class PhaseSamples(NamedTuple):
    """One row for each sample: its features, its label (0 or 1), and its phase."""

    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    phases: NDArray[np.int64]


class PermutationVerdict(NamedTuple):
    area: float
    low: float
    high: float

    @property
    def is_silent(self) -> bool:
        return self.low <= self.area <= self.high


Fit: TypeAlias = Callable[
    [NDArray[np.float64], NDArray[np.bool_]], Callable[[NDArray[np.float64]], NDArray[np.float64]]
]
"""From rows and labels to a function that scores other rows."""


def fit_additive(
    features: NDArray[np.float64], happened: NDArray[np.bool_]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """One weight for each bin of each feature."""
    return fit_binned(features, happened).scores


def judge_classifier(
    samples: PhaseSamples, seed: int, exchanges: int = 2000, fit: Fit = fit_additive
) -> PermutationVerdict:
    """Every phase has one label; there are at least two phases of either label."""
    rng = np.random.default_rng(seed)
    test = _half(samples, rng)
    scores = fit(samples.features[~test], samples.labels[~test] == 1)(samples.features[test])
    curve = _Curve(scores, samples.phases[test], samples.labels[test])
    low, high = np.quantile([curve.area(rng.permutation(curve.labels)) for _ in range(exchanges)], [0.025, 0.975])
    return PermutationVerdict(curve.area(curve.labels), float(low), float(high))


def _half(samples: PhaseSamples, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mask of the test samples: those of half of the phases of either label."""
    chosen: list[int] = []
    for label in (0, 1):
        phases = rng.permutation(np.unique(samples.phases[samples.labels == label]))
        chosen += phases[: len(phases) // 2].tolist()
    return np.isin(samples.phases, chosen)


class _Curve:
    """The area under the curve by ranks, summed for each phase once, so that a permutation of labels is cheap."""

    def __init__(self, scores: NDArray[np.float64], phases: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        _, first, index = np.unique(phases, return_index=True, return_inverse=True)
        self.labels = labels[first]
        self._counts = np.bincount(index)
        self._ranks = np.bincount(index, weights=rankdata(scores))

    def area(self, labels: NDArray[np.int64]) -> float:
        ones = int(self._counts[labels == 1].sum())
        zeros = int(self._counts.sum()) - ones
        return float((self._ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))

"""Every generator of fakes, with values that it can foil, and a measure of uniformity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilcast.foil.generators.base import Generator
from veilcast.foil.generators.categories import BucketFakes, CodedNumbers, EntropyFakes, Pmf
from veilcast.foil.generators.dependent import ConditionalTable, DependentEvents, LinearLaw
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.generators.movers import (
    BlockMoves,
    GaussianMoves,
    RevertingMoves,
    SignFlipMoves,
    SignPersistence,
    StudentMoves,
)
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.foil.random_source import RandomSource

ZIPF = Pmf(1 / np.arange(1, 7))
PRICES = np.round(np.arange(0, 100_001) / 100, 2)
CENT_DOMAIN = NumericDomain(low=0, high=1000, decimals=2)


@dataclass(frozen=True)
class GeneratorCase:
    generator: Generator[Any, Any]
    attributes: int = 0
    """0 for values of a single attribute."""
    codes: bool = False

    def values(self, streams: int, steps: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        shape = (streams, steps, self.attributes) if self.attributes else (streams, steps)
        if self.codes:
            return ZIPF.codes_at(rng.random(shape))
        return np.round(500 + np.cumsum(rng.standard_normal(shape), axis=1), 2)


def _numbers(k: int) -> dict[str, Generator[Any, np.float64]]:
    history = np.random.default_rng(1).standard_normal(200)
    return {
        "noise": NoiseFakes(k, 0.5, domain=CENT_DOMAIN),
        "relative noise": NoiseFakes.as_published(k, "minute", 10),
        "window": WindowFakes(k, 0.5, domain=CENT_DOMAIN),
        "gaussian trajectories": Trajectories(k, GaussianMoves(0, 1), domain=CENT_DOMAIN),
        "student trajectories": Trajectories(k, StudentMoves(0, 1e-3, 3, relative=True)),
        "block trajectories": Trajectories(k, BlockMoves(history, 20)),
        "reverting trajectories": Trajectories(k, RevertingMoves(500, 0.9, 1)),
        "sign-flip": Trajectories(k, SignFlipMoves(), domain=CENT_DOMAIN),
        "sign-flip in blocks": Trajectories(
            k, SignFlipMoves(block=5, relative=True, persistence=SignPersistence(-0.2, -0.1))
        ),
        "moran": MoranTrajectories(Trajectories(k, GaussianMoves(0, 1), domain=CENT_DOMAIN), rate=2.0),
        "sign-flip in blocks that grow": Trajectories(k, SignFlipMoves(block=5, growing=True), domain=CENT_DOMAIN),
        "moran sign-flip": MoranTrajectories(Trajectories(k, SignFlipMoves()), rate=2.0),
    }


K = 3
GENERATOR_CASES: dict[str, GeneratorCase] = {
    **{name: GeneratorCase(generator) for name, generator in _numbers(K).items()},
    "levelling": GeneratorCase(EntropyFakes(K, ZIPF), codes=True),
    "hard buckets": GeneratorCase(BucketFakes(K, ZIPF, "hard", cache=0), codes=True),
    "fractional buckets": GeneratorCase(BucketFakes(K, ZIPF, "fractional", cache=8, match="any"), codes=True),
    "systematic buckets": GeneratorCase(BucketFakes(K, ZIPF), codes=True),
    "buckets of numbers": GeneratorCase(CodedNumbers(PRICES, BucketFakes(K, Pmf(np.ones(len(PRICES)))))),
    "dependent": GeneratorCase(
        DependentEvents(NoiseFakes(K, 0.5), [LinearLaw(2, 1, 0.1), LinearLaw(-1, 0, 0)]), attributes=3
    ),
    "dependent codes": GeneratorCase(
        DependentEvents(EntropyFakes(K, ZIPF), [ConditionalTable(np.ones((6, 6)))]), attributes=2, codes=True
    ),
}


def unevenness(places: npt.NDArray[np.int64], n: int) -> float:
    """The largest deviation from a uniform share, in standard errors."""
    counts = np.bincount(places.ravel(), minlength=n)
    expected = places.size / n
    return float(np.abs(counts - expected).max() / np.sqrt(expected * (1 - 1 / n)))


def rank_of_truth(
    measured: npt.NDArray[np.float64], position: npt.NDArray[np.int64], rng: RandomSource
) -> npt.NDArray[np.int64]:
    """Number of candidates of [streams, n] that measure less than the truth; ties are broken at random."""
    order = np.lexsort((rng.random(measured.shape), measured), axis=1)
    rank: npt.NDArray[np.int64] = np.argmax(order == position[:, None], axis=1)
    return rank

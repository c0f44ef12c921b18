"""Every generator of fakes, with values that it can foil, and a measure of how evenly something falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilcast.foil.bucketing import Bucketing
from veilcast.foil.chance import Chance
from veilcast.foil.coded import Coded
from veilcast.foil.dependent import Dependent, Given, Independent, Linear
from veilcast.foil.entropy import Levelling
from veilcast.foil.generator import Generator
from veilcast.foil.lean import Lean
from veilcast.foil.moran import Moran
from veilcast.foil.moves import Blocks, Gaussian, Reverting, StudentT
from veilcast.foil.noise import Noise
from veilcast.foil.pmf import Pmf
from veilcast.foil.signflip import SignFlip
from veilcast.foil.span import Span
from veilcast.foil.trajectory import Trajectories
from veilcast.foil.window import Window

ZIPF = Pmf(1 / np.arange(1, 7))
PRICES = np.round(np.arange(0, 100_001) / 100, 2)
CENTS = Span(low=0, high=1000, decimals=2)


@dataclass(frozen=True)
class Case:
    generator: Generator[Any, Any]
    attributes: int = 0
    """0 for values that are no events of several."""
    codes: bool = False

    def values(self, streams: int, steps: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        shape = (streams, steps, self.attributes) if self.attributes else (streams, steps)
        if self.codes:
            return ZIPF.at(rng.random(shape))
        return np.round(500 + np.cumsum(rng.standard_normal(shape), axis=1), 2)


def _numbers(k: int) -> dict[str, Generator[Any, np.float64]]:
    history = np.random.default_rng(1).standard_normal(200)
    return {
        "noise": Noise(k, 0.5, span=CENTS),
        "relative noise": Noise.as_published(k, "minute", 10),
        "window": Window(k, 0.5, span=CENTS),
        "gaussian trajectories": Trajectories(k, Gaussian(0, 1), span=CENTS),
        "student trajectories": Trajectories(k, StudentT(0, 1e-3, 3, relative=True)),
        "block trajectories": Trajectories(k, Blocks(history, 20)),
        "reverting trajectories": Trajectories(k, Reverting(500, 0.9, 1)),
        "sign-flip": Trajectories(k, SignFlip(), span=CENTS),
        "sign-flip in blocks": Trajectories(k, SignFlip(block=5, relative=True, lean=Lean(-0.2, -0.1))),
        "moran": Moran(Trajectories(k, Gaussian(0, 1), span=CENTS), rate=2.0),
        "sign-flip in blocks that grow": Trajectories(k, SignFlip(block=5, growing=True), span=CENTS),
        "moran sign-flip": Moran(Trajectories(k, SignFlip()), rate=2.0),
    }


K = 3
ZOO: dict[str, Case] = {
    **{name: Case(generator) for name, generator in _numbers(K).items()},
    "levelling": Case(Levelling(K, ZIPF), codes=True),
    "hard buckets": Case(Bucketing(K, ZIPF, "hard", cache=0), codes=True),
    "fractional buckets": Case(Bucketing(K, ZIPF, "fractional", cache=8, match="any"), codes=True),
    "systematic buckets": Case(Bucketing(K, ZIPF), codes=True),
    "buckets of numbers": Case(Coded(PRICES, Bucketing(K, Pmf(np.ones(len(PRICES)))))),
    "independent": Case(Independent([Noise(K, 0.5), Trajectories(K, Gaussian(0, 1))]), attributes=2),
    "dependent": Case(Dependent(Noise(K, 0.5), [Linear(2, 1, 0.1), Linear(-1, 0, 0)]), attributes=3),
    "dependent codes": Case(Dependent(Levelling(K, ZIPF), [Given(np.ones((6, 6)))]), attributes=2, codes=True),
}


def unevenness(places: npt.NDArray[np.int64], n: int) -> float:
    """The largest deviation from an even share, in standard errors."""
    counts = np.bincount(places.ravel(), minlength=n)
    expected = places.size / n
    return float(np.abs(counts - expected).max() / np.sqrt(expected * (1 - 1 / n)))


def rank_of_truth(
    measured: npt.NDArray[np.float64], position: npt.NDArray[np.int64], rng: Chance
) -> npt.NDArray[np.int64]:
    """How many candidates of [streams, n] measure less than the truth; ties fall as chance will."""
    order = np.lexsort((rng.random(measured.shape), measured), axis=1)
    rank: npt.NDArray[np.int64] = np.argmax(order == position[:, None], axis=1)
    return rank

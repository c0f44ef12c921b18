"""Categories (P3, Scenarios II and III): fakes that level, and fakes out of buckets.

A stream is a chain: with some probability a category stays, and else it is drawn by its law. Against it stand attackers
who know the law and attackers who count. The entropy of all messages together is Scenario II's aim.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.bucketing import Bucketing
from veilcast.foil.chance import Numbers, Places
from veilcast.foil.entropy import Levelling, smallest_k
from veilcast.foil.generator import Generator, foiled
from veilcast.foil.pmf import Pmf
from veilcast.lab.attack.foil_counts import counts
from veilcast.lab.attack.foil_model import Model
from veilcast.lab.kernels.chance import stream
from veilcast.lab.measure.foiling import composite_entropy, indistinguishability, likeliest
from veilcast.lab.sweep.foil_guesses import Foiled, told
from veilcast.lab.sweep.params import Measure, Params


def run(params: Params, seed: int) -> list[Measure]:
    pmf = law(params)
    rng = np.random.default_rng(stream(seed, "codes"))
    values = _lasting(pmf, params, rng)
    maker = _maker(params, pmf)
    candidates, position = foiled(maker, values, np.random.default_rng(stream(seed, "fakes", params.foil)))
    model = Model(pmf=pmf.p, fake_pmf=_fakes(maker))
    numbers = Foiled(candidates.astype(np.float64), position, values.astype(np.float64), np.arange(len(values)), model)
    by_counts = indistinguishability(likeliest(counts(numbers.candidates, model)), position)
    return [
        *told([numbers], params, seed),
        Measure("counts", "identified", 0, float(by_counts.mean())),
        Measure("", "entropy", 0, composite_entropy(numbers.candidates, len(pmf))),
        Measure("", "entropy_most", 0, float(np.log2(len(pmf)))),
        Measure("", "smallest_k", 0, float(smallest_k(pmf))),
    ]


def law(params: Params) -> Pmf:
    codes = np.arange(params.categories)
    match params.law:
        case "zipf-1":
            return Pmf(1 / (codes + 1))
        case "zipf-2":
            return Pmf(1 / (codes + 1) ** 2)
        case "gaussian":
            return Pmf(np.exp(-((codes - (params.categories - 1) / 2) ** 2) / (2 * 6.0**2)))
        case _:
            return Pmf(np.ones(params.categories))


def _lasting(pmf: Pmf, params: Params, rng: np.random.Generator) -> Places:
    shape = (params.streams, params.length)
    fresh, stays = pmf.at(rng.random(shape)), rng.random(shape) < params.lasting
    stays[:, 0] = False
    since = np.maximum.accumulate(np.where(stays, 0, np.arange(params.length)), axis=1)
    return np.take_along_axis(fresh, since, axis=1)


def _maker(params: Params, pmf: Pmf) -> Generator[Any, np.int64]:
    match params.foil:
        case "entropy":
            return Levelling(params.fakes, pmf)
        case "bucketing":
            return Bucketing(params.fakes, pmf, params.buckets, params.cache, params.match)
        case other:
            raise ConfigError(f"categories are foiled by entropy or bucketing, not by {other}")


def _fakes(maker: Generator[Any, np.int64]) -> Numbers:
    """How likely each code is as a fake: out of buckets, by its share of its own."""
    if isinstance(maker, Levelling):
        return maker.fakes.p
    if isinstance(maker, Bucketing) and maker.buckets == "hard":
        ends = np.clip(np.ceil(np.round(maker.pmf.upto * maker.n, 9)).astype(np.int64) - 1, 0, maker.k)
        masses = np.bincount(ends, weights=maker.pmf.p, minlength=maker.n)
        return maker.pmf.p / masses[ends]
    return maker.pmf.p if isinstance(maker, Bucketing) else np.empty(0)

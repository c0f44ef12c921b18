"""Categories (P3, Scenarios II and III): fakes that maximise entropy, and fakes out of buckets.

A stream is a Markov chain: with some probability a category stays, otherwise it is drawn from its distribution. Some
attackers know the distribution, others count. Scenario II maximises the entropy of all messages together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.foil.generators.base import Generator, foil_series
from veilcast.foil.generators.categories import BucketFakes, EntropyFakes, Pmf, fakes_for_uniform
from veilcast.foil.random_source import FloatArray, IntArray
from veilcast.lab.attack.stream.model import StreamModel
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.foil_params import FoilCategories
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.foil_privacy import composite_entropy
from veilcast.lab.measure.stream_guesses import compare_streams, measure_stream_guesses
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil.guesses import FoiledStreams, attack_streams, measure_compared, read_unit


def run(
    params: FoilCategories, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    pmf = make_pmf(params)
    rng = np.random.default_rng(stream(seed, "codes"))
    values = _lasting(pmf, params, rng)
    maker = _maker(params, pmf)
    candidates, position = foil_series(maker, values, np.random.default_rng(stream(seed, "fakes", params.foil)))
    model = StreamModel(pmf=pmf.p, fake_pmf=_fakes(maker), codes=len(pmf))
    numbers = FoiledStreams(
        candidates.astype(np.float64), position, values.astype(np.float64), np.arange(len(values)), model
    )
    observed, guesses, truth = attack_streams(numbers, _attackers(params), recorder)
    seen = {name: observed[name] for name in ("streams", "facts")}
    return [
        *measure_guesses(guesses, truth, params, (), seed, **seen),
        Measure("", "entropy", 0, composite_entropy(numbers.candidates, len(pmf))),
        Measure("", "entropy_most", 0, float(np.log2(len(pmf)))),
        Measure("", "smallest_k", 0, float(fakes_for_uniform(pmf))),
    ]


def attack_tables(
    observed: Mapping[str, AnyTable], params: FoilCategories, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of those that the parameters name, beside "counts"."""
    return guess_streams(observed, names or _attackers(params) or None)


def measure_guesses(
    guesses: pa.Table,
    truth: pa.Table,
    params: FoilCategories,
    names: Collection[str],
    seed: int,
    *,
    streams: pa.Table,
    facts: pa.Table,
) -> list[Measure]:
    """The measures of these attackers, or of all. Counts look at all traffic, so their first step counts, too."""
    is_count = pc.equal(guesses["attack"], _COUNTS)
    others = compare_streams(streams, guesses.filter(pc.invert(is_count)), truth, read_unit(facts), params.guessers)
    found = measure_compared([others], params.fakes, seed) if others.results else []
    found += [
        Measure(attack, metric, step, value)
        for attack, metric, step, value in measure_stream_guesses(guesses.filter(is_count), truth, first_step=0)
        if metric == "identified"
    ]
    return [one for one in found if not names or one.attack in names]


def _attackers(params: FoilCategories) -> tuple[str, ...]:
    return (*params.guessers, _COUNTS) if params.guessers else ()


def make_pmf(params: FoilCategories) -> Pmf:
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


def _lasting(pmf: Pmf, params: FoilCategories, rng: np.random.Generator) -> IntArray:
    shape = (params.streams, params.length)
    fresh, stays = pmf.codes_at(rng.random(shape)), rng.random(shape) < params.lasting
    stays[:, 0] = False
    since = np.maximum.accumulate(np.where(stays, 0, np.arange(params.length)), axis=1)
    return np.take_along_axis(fresh, since, axis=1)


def _maker(params: FoilCategories, pmf: Pmf) -> Generator[Any, np.int64]:
    match params.foil:
        case "entropy":
            return EntropyFakes(params.fakes, pmf)
        case _:
            return BucketFakes(params.fakes, pmf, params.buckets, params.cache, params.match)


def _fakes(maker: Generator[Any, np.int64]) -> FloatArray:
    """The probability of each code as a fake. Buckets give a code its share of its own bucket."""
    if isinstance(maker, EntropyFakes):
        return maker.fakes.p
    if isinstance(maker, BucketFakes) and maker.buckets == "hard":
        ends = np.clip(np.ceil(np.round(maker.pmf.upto * maker.n, 9)).astype(np.int64) - 1, 0, maker.k)
        masses = np.bincount(ends, weights=maker.pmf.p, minlength=maker.n)
        return maker.pmf.p / masses[ends]
    return maker.pmf.p if isinstance(maker, BucketFakes) else np.empty(0)


_COUNTS: Final = "counts"

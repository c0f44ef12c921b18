"""Events of two numbers of which one depends on the other (P3, end of IV.B): three ways to draw the dependent number of
a fake.

Two attackers: one looks at the distance of the dependent number from its regression line, and one knows the densities
of truth and fakes (`attack.stream.single_step`). The primary number is foiled by whole trajectories of its own
distribution, so that only the dependence is tested. The table `streams` has the primary numbers, `stream_knowledge` the
dependent ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.dependent import DependentEvents, LinearLaw
from veilcast.foil.generators.movers import RevertingMoves
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.lab.attack.stream.model import LineLaw, StreamModel
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.foil_params import FoilPairs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.stream_guesses import compare_streams
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil.guesses import FoiledStreams, attack_streams, read_unit


def run(params: FoilPairs, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
    rho, rng = params.rho, np.random.default_rng(stream(seed, "pairs"))
    rest = math.sqrt(1 - rho**2)
    shape = (params.streams, params.length)
    primary = rng.standard_normal(shape)
    values = np.stack([primary, rho * primary + rest * rng.standard_normal(shape)], axis=2)
    laws = {
        "regression": LinearLaw(rho, 0, 0),
        "alone": LinearLaw(0, 0, 1),
        "conditional": LinearLaw(rho, 0, rest),
    }
    law = laws[params.dependents]
    # Independent normal numbers.
    generator = DependentEvents(Trajectories(params.fakes, RevertingMoves(0, 0, 1)), [law])
    candidates, position = foil_series(generator, values, rng)
    known = StreamModel(dependent=candidates[..., 1], correlation=rho, fake_line=LineLaw(law.slope, law.deviation))
    day = np.arange(params.streams)
    observed, guesses, truth = attack_streams(
        FoiledStreams(candidates[..., 0], position, primary, day, known), _ATTACKS, recorder
    )
    seen = {name: observed[name] for name in ("streams", "facts")}
    chance = Measure("", "chance", 0, 1 / (params.fakes + 1))
    return [chance, *measure_guesses(guesses, truth, params, (), seed, **seen)]


def attack_tables(
    observed: Mapping[str, AnyTable], params: FoilPairs, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of both."""
    return guess_streams(observed, names or _ATTACKS)


def measure_guesses(
    guesses: pa.Table,
    truth: pa.Table,
    params: FoilPairs,
    names: Collection[str],
    seed: int,
    *,
    streams: pa.Table,
    facts: pa.Table,
) -> list[Measure]:
    """The measures of these attackers, or of all."""
    compared = compare_streams(streams, guesses, truth, read_unit(facts))
    return [
        Measure(attack, "identified", 0, float(compared.results[attack].identified.mean()))
        for attack in pc.unique(guesses["attack"]).to_pylist()
        if not names or attack in names
    ]


_ATTACKS: Final = ("residual", "density")

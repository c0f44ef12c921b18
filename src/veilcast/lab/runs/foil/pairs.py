"""Events of two numbers of which one depends on the other (P3, end of IV.B): three ways to draw the dependent number of
a fake.

Two attackers: one looks at the distance of the dependent number from its regression line, and one knows the densities
of truth and fakes (`attack.stream.single_step`). The primary number is foiled by whole trajectories of its own
distribution, so that only the dependence is tested.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.dependent import DependentEvents, LinearLaw
from veilcast.foil.generators.movers import RevertingMoves
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.lab.attack.stream.single_step import score_density, score_residual
from veilcast.lab.experiment.foil_params import FoilPairs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates
from veilcast.lab.models.rng import stream


def run(params: FoilPairs, seed: int, data: Path | None = None) -> list[Measure]:
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
    posteriors = {
        "residual": score_residual(candidates, rho),
        "density": score_density(candidates, rho, law.slope, law.deviation),
    }
    return [
        Measure("", "chance", 0, 1 / (params.fakes + 1)),
        *(
            Measure(
                attack, "identified", 0, float(indistinguishability(likeliest_candidates(each), position)[:, 1:].mean())
            )
            for attack, each in posteriors.items()
        ),
    ]

"""Events of two numbers that depend on one another (P3, end of IV.B): how the slave of a fake is drawn decides.

Against it stand who looks at how far a slave is from its line, and who knows the densities of truth and fakes
(`lab.attack.foil_pairs`). The master is foiled by whole trajectories of its own law, so that nothing but the dependence
is on trial.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.dependent import ConditionalLaw, DependentEvents, LinearLaw
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
    master = rng.standard_normal(shape)
    values = np.stack([master, rho * master + rest * rng.standard_normal(shape)], axis=2)
    slave = {"regression": LinearLaw(rho, 0, 0), "alone": LinearLaw(0, 0, 1), "conditional": LinearLaw(rho, 0, rest)}
    drawn: ConditionalLaw[np.float64] = slave[params.dependents]
    # Numbers of a normal law, each without a memory of the last.
    generator = DependentEvents(Trajectories(params.fakes, RevertingMoves(0, 0, 1)), [drawn])
    candidates, position = foil_series(generator, values, rng)
    posteriors = {
        "residual": score_residual(candidates, rho),
        "density": score_density(candidates, rho, slave[params.dependents].slope, slave[params.dependents].deviation),
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

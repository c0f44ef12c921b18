"""Events of two numbers that depend on one another (P3, end of IV.B): how the slave of a fake is drawn decides.

Against it stand who looks at how far a slave is from its line, and who knows the densities of truth and fakes
(`lab.attack.foil_pairs`). The master is foiled by whole trajectories of its own law, so that nothing but the dependence
is on trial.
"""

from __future__ import annotations

import math

import numpy as np

from veilcast.foil.dependent import Conditional, Dependent, Linear
from veilcast.foil.generator import foiled
from veilcast.foil.moves import Reverting
from veilcast.foil.trajectory import Trajectories
from veilcast.lab.attack.foil_pairs import density, residual
from veilcast.lab.kernels.chance import stream
from veilcast.lab.measure.foiling import indistinguishability, likeliest
from veilcast.lab.sweep.params import Measure, Params


def run(params: Params, seed: int) -> list[Measure]:
    rho, rng = params.rho, np.random.default_rng(stream(seed, "pairs"))
    rest = math.sqrt(1 - rho**2)
    shape = (params.streams, params.length)
    master = rng.standard_normal(shape)
    values = np.stack([master, rho * master + rest * rng.standard_normal(shape)], axis=2)
    slave = {"regression": Linear(rho, 0, 0), "alone": Linear(0, 0, 1), "conditional": Linear(rho, 0, rest)}
    drawn: Conditional[np.float64] = slave[params.slaves]
    # Numbers of a normal law, each without a memory of the last.
    generator = Dependent(Trajectories(params.fakes, Reverting(0, 0, 1)), [drawn])
    candidates, position = foiled(generator, values, rng)
    posteriors = {
        "residual": residual(candidates, rho),
        "density": density(candidates, rho, slave[params.slaves].slope, slave[params.slaves].deviation),
    }
    return [
        Measure("", "chance", 0, 1 / (params.fakes + 1)),
        *(
            Measure(attack, "identified", 0, float(indistinguishability(likeliest(each), position)[:, 1:].mean()))
            for attack, each in posteriors.items()
        ),
    ]

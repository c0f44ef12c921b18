"""Runs about clocks: does an observer of all cells recognise a machine by the error of its clock
(`observer.clock_skew`)?

The errors of clocks are normally distributed. The observer watches all machines for as many minutes as a step says.
Then each machine returns under another address with new links, and is watched for as long. The observer has to find the
machine again. Another member on the same machine looks the same to the observer. So `auc_same` also says how well the
observer tells members on one machine from members on others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.observer.clock_skew import ESTIMATORS, identify, number_slots
from veilcast.lab.experiment.mesh_params import MeshClocks
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.cell_times import cell_times
from veilcast.lab.models.rng import stream


def run(params: MeshClocks, seed: int, data: Path | None = None) -> list[Measure]:
    errors = np.random.default_rng(stream(seed, "clocks")).normal(0, params.skew_ppm, params.nodes)
    found = []
    for step in params.steps:
        before, after = (_watch(params, seed, errors, step, f"{when} {step}") for when in ("before", "after"))
        for estimator, seen in before.items():
            again = after[estimator]
            pairs = -np.abs(again[:, None] - seen[None, :])
            same = np.eye(params.nodes, dtype=np.bool_)
            values = {
                "error_ppm": float(np.median(np.abs(seen - errors))),
                "identified": float(np.mean(identify(seen, again) == np.arange(params.nodes))),
                "auc_same": auc(pairs.ravel(), same.ravel()),
            }
            found += [Measure(estimator, metric, step, value) for metric, value in values.items()]
    return [*found, Measure("", "base", 0, 1 / params.nodes)]


def _watch(
    params: MeshClocks, seed: int, errors: NDArray[np.float64], minutes: float, watch: str
) -> dict[str, NDArray[np.float64]]:
    """By estimator, the observer's estimate of the error of each machine's clock, in ppm; positive for a fast clock."""
    rng = np.random.default_rng(stream(seed, watch))
    found: dict[str, list[float]] = {estimator: [] for estimator in ESTIMATORS}
    for error in errors.tolist():
        sums = dict.fromkeys(ESTIMATORS, 0.0)
        for _ in range(params.degree):
            t_us = cell_times(
                rng,
                rate=RATE,
                seconds=60 * minutes,
                skew_ppm=error,
                walks=params.clocks in ("walk", "wander"),
                stretches=params.clocks == "wander",
            )
            numbered = number_slots(t_us)
            for name, estimate in ESTIMATORS.items():
                sums[name] -= estimate(*numbered) * 1e6
        for estimator, total in sums.items():
            found[estimator].append(total / params.degree)
    return {estimator: np.array(values) for estimator, values in found.items()}


RATE: Final = 4
"""Cells per second on each link."""

"""Branching trajectories against whoever sees every branching, and learns the truth with a delay.

The worst case for Moran branching (`foil.moran`): slots are followed perfectly, and who is whose child is seen too.
Values say nothing more, for all move alike, and need not be drawn. Two attackers. One learns after so many steps which
slot was the truth, and knows how branchings are drawn: what it believes is handed on from parent to child, and is
exact. The other is told nothing and counts: it holds for true who has the fewest branchings among its forebears, which
gives away a truth that becomes a parent as seldom as any other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilcast.foil.generators.moran import draw_branching, draw_poisson
from veilcast.foil.random_source import FloatArray, IntArray
from veilcast.lab.experiment.foil_params import FoilPedigrees
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil.generators import branching_rate


def run(params: FoilPedigrees, seed: int, data: Path | None = None) -> list[Measure]:
    n, naive = params.fakes + 1, params.foil == "naive"
    rng = np.random.default_rng(stream(seed, "pedigrees"))
    position = np.zeros(params.streams, np.int64)
    belief, counts = np.ones((params.streams, n)), np.zeros((params.streams, n))
    for step in range(params.length):
        if step == params.length - params.public:
            belief[:] = np.arange(n) == position[:, None]
        events = draw_poisson(branching_rate(params.fakes, params.public, params.rate), position.shape, rng)
        for event in range(int(events.max(initial=0))):
            rows = np.flatnonzero(events > event)
            parent, victim, position[rows] = draw_branching(position[rows], n, rng, naive=naive)
            belief[rows] = _handed_on(belief[rows], parent, victim, (n - 2) / (n - 1) if naive else 2.0)
            counts[rows] = _counted(counts[rows], parent, victim)
    return [
        Measure("", "chance", 0, 1 / n),
        Measure("told", "identified", 0, _right(belief, position)),
        Measure("counting", "identified", 0, _right(2.0**-counts, position)),
    ]


def _handed_on(belief: FloatArray, parent: IntArray, victim: IntArray, times: float) -> FloatArray:
    """`times` as likely is this branching with the truth for a parent as with the truth beside it; and then the truth
    goes on in either of the two."""
    rows = np.arange(len(belief))
    after = belief.copy()
    after[rows, parent] = after[rows, victim] = times / 2 * belief[rows, parent]
    total: FloatArray = after.sum(axis=1, keepdims=True)
    return after / total


def _counted(counts: FloatArray, parent: IntArray, victim: IntArray) -> FloatArray:
    rows = np.arange(len(counts))
    after = counts.copy()
    after[rows, parent] += 1
    after[rows, victim] = after[rows, parent]
    # Only differences count, and powers of two of large numbers would be nothing.
    fewest: FloatArray = after.min(axis=1, keepdims=True)
    return after - fewest


def _right(posterior: FloatArray, position: IntArray) -> float:
    chosen = likeliest_candidates(posterior[:, None])
    return float(indistinguishability(chosen, position[:, None]).mean())

"""Branching trajectories against an attacker that sees every branching, and learns the truth with a delay.

The worst case for Moran branching (`foil.generators`): slots are followed perfectly, and parents and children of
branchings are seen. Values add nothing, because all slots move alike, and are not drawn. There are two attackers. The
first learns after a delay which slot was the truth, and knows how branchings are drawn: its belief passes from parent
to child, and is exact. The second is told nothing and counts: it takes the slot with the fewest branchings among its
ancestors for the truth. It finds a truth that becomes a parent no more often than any other slot.
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
            belief[rows] = _update_belief(belief[rows], parent, victim, (n - 2) / (n - 1) if naive else 2.0)
            counts[rows] = _count_branching(counts[rows], parent, victim)
    return [
        Measure("", "chance", 0, 1 / n),
        Measure("told", "identified", 0, _right(belief, position)),
        Measure("counting", "identified", 0, _right(2.0**-counts, position)),
    ]


def _update_belief(belief: FloatArray, parent: IntArray, victim: IntArray, times: float) -> FloatArray:
    """This branching is `times` as likely with the truth as the parent as without it; afterwards the truth is in either
    of the two slots."""
    rows = np.arange(len(belief))
    after = belief.copy()
    after[rows, parent] = after[rows, victim] = times / 2 * belief[rows, parent]
    total: FloatArray = after.sum(axis=1, keepdims=True)
    return after / total


def _count_branching(counts: FloatArray, parent: IntArray, victim: IntArray) -> FloatArray:
    rows = np.arange(len(counts))
    after = counts.copy()
    after[rows, parent] += 1
    after[rows, victim] = after[rows, parent]
    # Only differences count, and large negative powers of two would vanish.
    fewest: FloatArray = after.min(axis=1, keepdims=True)
    return after - fewest


def _right(posterior: FloatArray, position: IntArray) -> float:
    chosen = likeliest_candidates(posterior[:, None])
    return float(indistinguishability(chosen, position[:, None]).mean())

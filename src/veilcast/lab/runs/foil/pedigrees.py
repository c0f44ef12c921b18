"""Branching trajectories against attackers that see every branching; one learns the truth with a delay.

The attackers are those of `attack.stream.pedigrees`. They see slots and branchings: values add nothing, because all
slots move alike, and are not drawn. So the table `streams` has slots without values, at the beginning and at the end.
`stream_knowledge` has the branchings, and the slot that is public.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from veilcast.foil.generators.moran import draw_branching, draw_poisson
from veilcast.lab.attack.stream.model import SeenBranchings, StreamModel
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.foil_params import FoilPedigrees
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.stream_guesses import measure_stream_guesses
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil.generators import branching_rate
from veilcast.lab.runs.foil.guesses import FoiledStreams, attack_streams


def run(
    params: FoilPedigrees, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    part = _draw_lineages(params, seed)
    observed, guesses, truth = attack_streams(part, _ATTACKS, recorder)
    seen = {name: observed[name] for name in ("streams", "facts")}
    chance = Measure("", "chance", 0, 1 / (params.fakes + 1))
    return [chance, *measure_guesses(guesses, truth, params, (), seed, **seen)]


def attack_tables(
    observed: Mapping[str, AnyTable], params: FoilPedigrees, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of both."""
    return guess_streams(observed, names or _ATTACKS)


def measure_guesses(
    guesses: pa.Table,
    truth: pa.Table,
    params: FoilPedigrees,
    names: Collection[str],
    seed: int,
    *,
    streams: pa.Table,
    facts: pa.Table,
) -> list[Measure]:
    """The measures of these attackers, or of all: how often they are right at the end."""
    return [
        Measure(attack, metric, step, value)
        for attack, metric, step, value in measure_stream_guesses(guesses, truth)
        if metric == "identified" and (not names or attack in names)
    ]


def _draw_lineages(params: FoilPedigrees, seed: int) -> FoiledStreams:
    """The branchings of all streams, and the slot of the truth at both ends."""
    n, naive = params.fakes + 1, params.foil == "naive"
    rng = np.random.default_rng(stream(seed, "pedigrees"))
    position = np.zeros(params.streams, np.int64)
    told, told_event, moments = np.full(params.streams, -1), 0, 0
    branchings = [np.empty((4, 0), np.int64)]
    for step in range(params.length):
        if step == params.length - params.public:
            told, told_event = position.copy(), moments
        events = draw_poisson(branching_rate(params.fakes, params.public, params.rate), position.shape, rng)
        for event in range(int(events.max(initial=0))):
            rows = np.flatnonzero(events > event)
            parent, child, position[rows] = draw_branching(position[rows], n, rng, naive=naive)
            branchings.append(np.stack([np.full(rows.size, moments), rows, parent, child]))
            moments += 1
    known = StreamModel(
        branchings=SeenBranchings(*np.concatenate(branchings, axis=1)),
        child_odds=(n - 2) / (n - 1) if naive else 2.0,
        told_slot=told,
        told_event=told_event,
    )
    places = np.stack([np.zeros_like(position), position], axis=1)
    slots = np.zeros((params.streams, 2, n))
    return FoiledStreams(slots, places, slots[:, :, 0], np.arange(params.streams), known)


_ATTACKS: Final = ("told", "counting")

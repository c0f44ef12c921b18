"""Runs about clocks: does an observer of all cells recognise a machine by the error of its clock
(`observer.clock_skew`)?

The errors of clocks are normally distributed. The observer watches all machines for as many minutes as a step says.
Then each machine returns under another address with new links, and is watched for as long. The observer has to find the
machine again. Another member on the same machine looks the same to the observer. So `auc_same` also says how well the
observer tells members on one machine from members on others.

The run writes cells, link by link, and its attackers guess from them (`attack.observer.clock_job`). A step has two
epochs: machines are called `n` in the first, and `m` in the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.observer.clock_job import compare_clocks, estimate_clocks, guess_from_clocks
from veilcast.lab.attack.table_engine import AnyTable, concat_rows
from veilcast.lab.experiment.mesh_params import MeshClocks
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.cell_times import cell_times
from veilcast.lab.models.rng import stream
from veilcast.wire.geometry import CELL


def run(
    params: MeshClocks, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    errors = np.random.default_rng(stream(seed, "clocks")).normal(0, params.skew_ppm, params.nodes)
    links = []
    for cells in _watch(params, seed, errors):
        record_tables(recorder, {"cells": cells})
        links.append(estimate_clocks(cells))
    guesses, truth = compare_clocks(concat_rows(links), _epochs(params)), _truth(params, errors)
    record_tables(recorder, {"guesses": guesses, "truth": truth})
    return [*measure_guesses(guesses, truth, params, (), seed), Measure("", "base", 0, 1 / params.nodes)]


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshClocks, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these estimators, or of all."""
    return guess_from_clocks(observed, names or None, _epochs(params))


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: MeshClocks, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these estimators, or of all."""
    return [
        Measure(attack, metric, step, value)
        for attack in pc.unique(guesses["attack"]).to_pylist()
        if not names or attack in names
        for step, epochs in zip(params.steps, _epochs(params), strict=True)
        for metric, value in _measure_estimator(guesses, truth, attack, epochs)
    ]


def _measure_estimator(guesses: pa.Table, truth: pa.Table, attack: str, epochs: int) -> Iterator[tuple[str, float]]:
    rows = guesses.filter(pc.and_(pc.equal(guesses["attack"], attack), pc.equal(guesses["epochs"], epochs)))
    clocks, pairs = (rows.filter(pc.equal(rows["role"], role)) for role in ("clock", "machine"))
    errors, same = (truth.filter(pc.equal(truth["role"], role)) for role in ("clock", "machine"))
    found = dict(zip(errors["node"].to_pylist(), map(float, errors["topic"].to_pylist()), strict=True))
    known = np.array([found[name] for name in clocks["node"].to_pylist()])
    yield "error_ppm", float(np.median(np.abs(clocks["score"].to_numpy() - known)))
    before, after = same["topic"].combine_chunks(), same["node"].combine_chunks()
    alike = np.full((len(after), len(before)), -np.inf)
    places = (pc.index_in(pairs[column], names).to_numpy() for column, names in (("node", after), ("topic", before)))
    alike[tuple(places)] = pairs["score"].to_numpy()
    right = np.eye(len(after), dtype=np.bool_)
    yield "identified", float(np.mean(alike.argmax(axis=1) == np.arange(len(after))))
    yield "auc_same", auc(alike.ravel(), right.ravel())


def _watch(params: MeshClocks, seed: int, errors: NDArray[np.float64]) -> Iterator[pa.Table]:
    """The cells of one link after the other."""
    for at, step in enumerate(params.steps):
        for epoch, letter, when in ((2 * at, "n", "before"), (2 * at + 1, "m", "after")):
            rng = np.random.default_rng(stream(seed, f"{when} {step}"))
            names = tables.name_numbers(letter, params.nodes).to_pylist()
            peers = tables.name_numbers("p", params.degree).to_pylist()
            for name, error in zip(names, errors.tolist(), strict=True):
                for peer in peers:
                    t_us = cell_times(
                        rng,
                        rate=RATE,
                        seconds=60 * step,
                        skew_ppm=error,
                        walks=params.clocks in ("walk", "wander"),
                        stretches=params.clocks == "wander",
                    )
                    yield tables.from_columns("cells", run=_RUN, epoch=epoch, t_us=t_us, src=name, dst=peer, size=CELL)


def _truth(params: MeshClocks, errors: NDArray[np.float64]) -> pa.Table:
    """The machine behind each new address, and the error of each clock, in ppm, as the topic."""
    before, after = (tables.name_numbers(letter, params.nodes) for letter in ("n", "m"))
    whole = {"run": _RUN, "since_us": 0, "until_us": 0}
    written = pa.array([repr(error) for error in errors.tolist()], pa.string())
    return pa.concat_tables(
        [
            tables.from_columns("truth", topic=before, node=after, role="machine", **whole),
            tables.from_columns("truth", topic=written, node=before, role="clock", **whole),
        ]
    )


def _epochs(params: MeshClocks) -> list[int]:
    """The number of epochs after each step."""
    return [2 * (at + 1) for at in range(len(params.steps))]


RATE: Final = 4
"""Cells per second on each link."""
_RUN: Final = "run"

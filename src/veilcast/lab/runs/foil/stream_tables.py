"""Foiled streams as tables: what brokers see, what is public about it, and the truth."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.registry import find_attacker
from veilcast.lab.attack.stream.model import StreamModel, StreamObservations
from veilcast.lab.attack.stream.stream_job import PATH_ATTACKERS, model_facts, model_series

Numbers = NDArray[np.float64]


def observe_streams(
    run: str, candidates: Numbers, model: StreamModel, unit: float, ancestral: Numbers | None, names: Collection[str]
) -> dict[str, pa.Table]:
    """The tables `streams`, `facts` and `stream_knowledge`. Without names, all attackers' knowledge is there."""
    needs = {need for name in names for need in (*find_attacker(name, StreamObservations).needs, *_paths_of(name))}
    series = dict(model_series(model)) | ({} if ancestral is None else {"ancestral": ancestral})
    kept = {name: values for name, values in series.items() if not names or _PART_OF.get(name, name) in needs}
    facts = model_facts(model) | {"unit": unit}
    parts = [tables.arrow_schema(tables.TABLES["stream_knowledge"]).empty_table()]
    parts += [_know(run, name, values) for name, values in kept.items()]
    if model.branchings is not None:
        event, stream, parent, child = model.branchings
        branching = {"stream": stream, "step": event, "slot": parent, "value": child}
        parts.append(tables.from_columns("stream_knowledge", run=run, name="branching", **branching))
    return {
        "streams": _tabulate("streams", run, candidates),
        "facts": tables.from_columns("facts", run=run, name=list(facts), value=[*map(float, facts.values())]),
        "stream_knowledge": pa.concat_tables(parts),
    }


def tabulate_truth(run: str, position: NDArray[np.int64], day: NDArray[np.int64]) -> pa.Table:
    stream, step = (index.ravel() for index in np.indices(position.shape))
    columns = {"stream": stream, "step": step, "slot": position.ravel(), "day": day[stream]}
    return tables.from_columns("stream_truth", run=run, **columns)


def _know(run: str, name: str, values: Numbers) -> pa.Table:
    if values.ndim == 1:
        columns = {"stream": -1, "step": 0, "slot": np.arange(values.size), "value": values}
        return tables.from_columns("stream_knowledge", run=run, name=name, **columns)
    whole = values if values.ndim == 3 else values[:, :, None]
    return _tabulate("stream_knowledge", run, whole, name=name)


def _tabulate(table: str, run: str, values: Numbers, **more: Any) -> pa.Table:
    """The numbers of [streams, steps, n], in their order."""
    stream, step, slot = (index.ravel() for index in np.indices(values.shape))
    return tables.from_columns(table, run=run, **more, stream=stream, step=step, slot=slot, value=values.ravel())


def _paths_of(name: str) -> tuple[str, ...]:
    return ("ancestral",) if name in PATH_ATTACKERS else ()


_PART_OF: Final = {"weights": "fitted"}
"""The part of a model that numbers belong to, where its name is another."""

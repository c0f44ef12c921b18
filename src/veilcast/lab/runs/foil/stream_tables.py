"""Foiled streams as a table, and attackers on it: a group of rows is a stream, and guesses are rows again.

It is for a broker's records, or for a few streams to examine. A sweep never writes such a table: candidates are streams
x steps x slots, and a sweep keeps only sums. The attackers' model is small and is sent to every executor. Each stream
is one group, and the attackers are the same as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.registry import attack_names, score_candidates
from veilcast.lab.attack.stream.model import Candidates, StreamModel, StreamObservations
from veilcast.lab.tables import StreamGuessRow, StreamRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream_rows(run: str, candidates: Candidates) -> pa.Table:
    """The candidates of [streams, steps, n] as rows of `streams`."""
    stream, step, slot = (index.ravel() for index in np.indices(candidates.shape))
    names = pa.repeat(pa.scalar(run), candidates.size)
    columns = [names, *map(pa.array, (stream, step, slot, candidates.ravel().astype(np.float64)))]
    return pa.table(columns, schema=tables.arrow_schema(StreamRow))


def guess_streams(streams: DataFrame, attacks: Sequence[str], model: StreamModel) -> DataFrame:
    """Rows of `streams` to rows of `stream_guesses`; all streams are of one model."""
    unknown = sorted(set(attacks) - set(attack_names(StreamObservations)))
    if unknown:
        raise ConfigError(f"no attackers on streams are called {', '.join(unknown)}")
    schema = tables.spark_schema(StreamGuessRow)
    return streams.groupBy("run", "stream").applyInArrow(_guess(tuple(attacks), model), schema)


def _guess(attacks: tuple[str, ...], model: StreamModel) -> Callable[[pa.Table], pa.Table]:
    def guess(group: pa.Table) -> pa.Table:
        ordered = group.sort_by([("step", "ascending"), ("slot", "ascending")])
        steps = len(np.unique(ordered["step"].to_numpy()))
        values = ordered["value"].to_numpy()
        if len(values) % steps:
            raise ConfigError("a stream has as many candidates at each step")
        seen = values.reshape(1, steps, -1)
        parts = []
        for attack in attacks:
            columns = {name: ordered[name] for name in ("run", "stream", "step", "slot")}
            columns["attack"] = pa.repeat(pa.scalar(attack), len(values))
            columns["score"] = pa.array(score_candidates(attack, seen, model).ravel())
            parts.append(pa.table(columns).select(tables.arrow_schema(StreamGuessRow).names))
        return pa.concat_tables(parts).cast(tables.arrow_schema(StreamGuessRow))

    return guess

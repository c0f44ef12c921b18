"""The task of a Spark executor: it makes its range of runs and returns rows.

The rows of a run depend on its parameters and its seed alone, and are sorted. So a portion has the same rows in the
same order on any number of cores. The duration of each run is returned with its rows, for planning, and is not stored.
An error names the run that raised it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
from threadpoolctl import threadpool_limits

from veilcast.decoding import JsonDecoder
from veilcast.errors import LocalError, TamperedError, VeilcastError
from veilcast.lab.experiment.kept_tables import KeptOutput, KeptWriter, run_name
from veilcast.lab.experiment.kinds import AnyParams
from veilcast.lab.experiment.params import RecordedRunFunction, RunFunction
from veilcast.lab.tables import MeasureRow, arrow_schema

_Row: TypeAlias = tuple[Any, ...]
"""A row of the table `measures`, as far as it is stored."""


class RunTask(msgspec.Struct, frozen=True):
    """The runs of a job. An executor calls it with the numbers of its runs; if tables are kept, with those of files."""

    cells: tuple[tuple[str, bytes], ...]
    """Names of cells, and their parameters as JSON."""
    seeds: tuple[int, ...]
    run: RunFunction
    data: str | None
    keep: KeptOutput | None = None
    """The observation tables to keep; then `run` takes a recorder, too."""
    files: int = 1
    """Files of each kept table and cell."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch of rows for each batch of numbers: a batch for each run would cost as much again as the runs."""
        schema = task_schema()
        with one_thread():
            for batch in batches:
                yield self._make_batch(batch, schema)

    def _make_batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        rows: list[_Row] = []
        for at, seeds in self._divide(batch["id"].to_pylist()):
            cell, params = self.cells[at]
            kept = KeptWriter(self.keep, at, cell, params, seeds) if self.keep is not None else None
            for seed in seeds:
                start = time.perf_counter()
                found = self._rows(cell, params, seed, kept)
                took = time.perf_counter() - start
                rows += [(*row, took, "") for row in found]
            if kept is not None:
                listed = msgspec.json.encode(kept.finish()).decode()
                rows.append((cell, seeds[-1], "", "", 0.0, 0.0, 0.0, listed))
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _divide(self, numbers: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """The cells and seeds of these numbers. Runs of one cell are neighbours."""
        many = len(self.seeds)
        if self.keep is not None:
            for number in numbers:
                at, file = divmod(number, self.files)
                yield at, self.seeds[file * many // self.files : (file + 1) * many // self.files]
            return
        for at, of_cell in groupby(numbers, lambda number: number // many):
            yield at, [self.seeds[number % many] for number in of_cell]

    def _rows(self, cell: str, params: bytes, seed: int, kept: KeptWriter | None) -> list[_Row]:
        run = f"cell {cell}, seed {seed}"
        try:
            decoded = PARAMS_DECODER.decode(params)
            data = Path(self.data) if self.data is not None else None
            if kept is None:
                measures = self.run(decoded, seed, data)
            else:
                recorder = kept.record_run(run_name(cell, seed))
                measures = cast(RecordedRunFunction, self.run)(decoded, seed, data, recorder)
        except VeilcastError:
            raise
        except Exception as error:
            raise LocalError(f"{run}: {type(error).__name__}: {' '.join(str(error).split())}") from error
        rows = sorted((cell, seed, *msgspec.structs.astuple(measure)) for measure in measures)
        _check(run, rows)
        return rows


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the products of matrices in one thread: several threads add in another order, and round differently. An
    executor of Spark has its cores busy with tasks as well."""
    if "scipy" in sys.modules:
        import scipy.linalg  # noqa: F401  it brings a library for matrices of its own, and only what is loaded is kept
    with threadpool_limits(1):
        yield


def task_schema() -> pa.Schema:
    """The columns that a task returns: those of `measures`, and two that are not stored."""
    more = [
        pa.field(DURATION_COLUMN, pa.float64(), nullable=False),
        pa.field(LISTED_COLUMN, pa.string(), nullable=False),
    ]
    return pa.schema([*arrow_schema(MeasureRow, stored=True), *more])


def _check(run: str, rows: list[_Row]) -> None:
    """Refuse a value that is not a finite number, and a measure that is there twice: either would spoil a mean
    silently."""
    if not rows:
        raise LocalError(f"{run}: nothing was measured")
    for _, _, attack, metric, step, value in rows:
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise LocalError(f"{run}: {attack} {metric} at {step} is {value}")
    for before, after in pairwise(rows):
        if before[:-1] == after[:-1]:
            raise LocalError(f"{run}: {after[2]} {after[3]} at {after[4]} is there twice")


PARAMS_DECODER: Final = JsonDecoder(AnyParams, TamperedError, "the parameters of a run are damaged")
DURATION_COLUMN: Final = "took"
"""The column with the duration of a run, in seconds."""
LISTED_COLUMN: Final = "listed"
"""Empty in a row of `measures`. Other rows are no measures: they are what a task lists beside them, as JSON."""

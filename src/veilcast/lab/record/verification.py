"""Verification: a recorded result is derived again, and every difference is told.

A run is a function of its parameters and its seed, so another run must give the same scores. Two machines may add in
another order: numbers count as equal up to a relative difference of 1e-9. Runs that measure real time give other
numbers each time, so their scores are not made again. What is held against what:

1. each recorded score against the score that is made again;
2. each recorded verdict against the verdict on the recorded scores, by the experiment as it stands now;
3. each verdict against the one that the experiment expects.

A quick run is smaller than the stated numbers are about; of these the scores alone are compared. So a number in the
record, an expectation in an experiment's file, or the code cannot change alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from veilcast.lab.experiment.definition import Experiment, load_experiment
from veilcast.lab.experiment.sweep import run_sweep
from veilcast.lab.experiment.verdicts import ScoreTable, judge_numbers
from veilcast.lab.record.recorded_runs import Record, RecordedRun, choose_drawn_scores
from veilcast.lab.runs.table import ENGINES
from veilcast.lab.storage.location import Location
from veilcast.lab.tables import ScoreRow, VerdictRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veilcast.lab.spark import Progress, SparkLater


def verify_run(
    spark: SparkSession | SparkLater | None,
    record: Record,
    run: RecordedRun,
    out: Location,
    *,
    data: Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """A line for each difference between a recorded run and the same run made again, with its results in `out`."""
    name, experiment = load_experiment(run.experiment)
    recorded = record.read_scores(run)
    found = [] if run.quick else [*check_verdicts(record.read_verdicts(run), name, experiment, recorded, run.engine)]
    if run.engine == "live":
        return found
    made = run_sweep(
        spark,
        name,
        experiment,
        out,
        engine=run.engine,
        runner=ENGINES[run.engine],
        seeds=run.seeds,
        quick=run.quick,
        data=data,
        progress=progress,
    )
    scores = (ScoreRow(**row) for row in made.scores.to_pylist())
    return [*found, *compare_scores(recorded, choose_drawn_scores(experiment, scores))]


def judge_recorded(record: Record, run: RecordedRun) -> list[VerdictRow]:
    """The verdicts on the recorded scores, by the experiment as it stands now."""
    name, experiment = load_experiment(run.experiment)
    return _judge(name, experiment, record.read_scores(run), run.engine)


def compare_scores(recorded: Iterable[ScoreRow], found: Iterable[ScoreRow]) -> Iterator[str]:
    """A line for each recorded score that is not made again, and for each that is made and not recorded."""
    made = {_key(row): row for row in found}
    for row in recorded:
        other = made.pop(_key(row), None)
        if other is None:
            yield f"{_describe(row)}: recorded {row.value!r}, and not made again"
            continue
        for name in _COMPARED:
            old, new = getattr(row, name), getattr(other, name)
            if not is_equal(old, new):
                yield f"{_describe(row)}: recorded {name} {old!r}, made again {new!r}"
    yield from (f"{_describe(row)}: made again {row.value!r}, and not recorded" for row in made.values())


def check_verdicts(
    recorded_rows: Iterable[VerdictRow],
    name: str,
    experiment: Experiment,
    scores: Sequence[ScoreRow],
    engine: str = "kernel",
) -> Iterator[str]:
    """A line for each recorded verdict that does not follow from the recorded scores, or that nobody expects."""
    judged = {(row.figure, row.what): row for row in _judge(name, experiment, scores, engine)}
    recorded = {(row.figure, row.what): row for row in recorded_rows}
    for key in sorted(judged.keys() | recorded.keys()):
        old, new = recorded.get(key), judged.get(key)
        if new is None:
            yield f"{key[1]}: recorded, and nothing that the experiment states"
            continue
        if old is None:
            yield f"{key[1]}: stated, and not recorded"
        elif found := _differences(old, new):
            yield f"{key[1]}: {found}"
        if new.verdict != new.expected:
            yield f"{key[1]}: {new.verdict}, not {new.expected} as expected"


def _judge(name: str, experiment: Experiment, scores: Iterable[ScoreRow], engine: str) -> list[VerdictRow]:
    table = ScoreTable(msgspec.structs.asdict(row) for row in scores)
    return judge_numbers(name, experiment, table, engine)


def is_equal(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _differences(old: VerdictRow, new: VerdictRow) -> str:
    for name in ("stated", "reproduced", "low", "high"):
        if not is_equal(getattr(old, name), getattr(new, name)):
            return f"recorded {name} {getattr(old, name)!r}, and now {getattr(new, name)!r}"
    if (old.kind, old.verdict) != (new.kind, new.verdict):
        return f"recorded {old.kind} {old.verdict}, and now {new.kind} {new.verdict}"
    return ""


def _key(row: ScoreRow) -> tuple[str, str, str, float]:
    return row.cell, row.attack, row.metric, row.step


def _describe(row: ScoreRow) -> str:
    return " ".join(filter(None, [row.cell, row.attack, row.metric, f"at step {row.step:g}"]))


_COMPARED: Final = ("value", "spread", "low", "high", "seeds")
_TOLERANCE: Final = 1e-9

"""Results of experiments as runs of MLflow, by plain calls of its client. MLflow is not a part of the lab's extra.

1. An experiment `veilcast/NAME` of MLflow holds the runs of one experiment of ours.
2. Each stored result is a run. Its tags are the lineage: location, command, engine, code, commit, seeds, digests of
   data and of scores, and the verdict on each published number. The definition is a file of the run.
3. Each cell is a run below it: its parameters, and its scores as metrics `ATTACK.METRIC`, with the ends of the interval
   as `ATTACK.METRIC.low` and `.high`.

MLflow's steps are whole numbers. Where steps of ours are not, the metrics are numbered by their order, and the
parameter `steps` lists the steps. A result that was exported before is found by its digest, and is not exported again.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import tables
from veilcast.lab.report.results import StoredResult, read_results
from veilcast.lab.storage.location import Location
from veilcast.lab.tables import ScoreRow

if TYPE_CHECKING:
    from mlflow import MlflowClient


class ExportedResult(NamedTuple):
    experiment: str
    run: str
    """The id of the run in MLflow."""
    cells: int
    is_new: bool
    """Whether this call has exported it."""


def export_results(location: Location, uri: str, names: Iterable[str] = ()) -> list[ExportedResult]:
    """Export these results, or all in the location, to MLflow's server or store at `uri`; empty: the one of
    MLFLOW_TRACKING_URI. Raises `ConfigError` if neither names one, and `StorageError` with MLflow's reason if it
    fails."""
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise ConfigError("this needs MLflow, which is not installed: pip install mlflow-skinny") from error
    if not (uri or os.environ.get("MLFLOW_TRACKING_URI")):
        raise ConfigError("no MLflow is named; give --uri, or set MLFLOW_TRACKING_URI")
    found = {result.name: result for result in read_results(location)}
    chosen = list(names) or list(found)
    for name in chosen:
        if name not in found:
            raise ConfigError(f"{location.place} has no result {name}; it has {', '.join(found)}")
    try:
        client = MlflowClient(tracking_uri=uri or None)
        return [_export(client, location, found[name]) for name in chosen]
    except (MlflowException, OSError) as error:
        raise StorageError(f"MLflow at {uri or 'MLFLOW_TRACKING_URI'}: {' '.join(str(error).split())}") from error


def _export(client: MlflowClient, location: Location, result: StoredResult) -> ExportedResult:
    manifest = result.manifest
    if manifest.scores is None:
        raise ConfigError(f"{result.name} is not complete; `veilcast lab run {result.name}` continues it")
    scores = tables.read(location, ScoreRow, result.name, [manifest.scores.path])
    cells = {each.name: each for each in result.experiment.make_cells(quick=manifest.quick, engine=manifest.engine)}
    book = _find_book(client, result.name)
    before = client.search_runs([book], f"tags.`{_DIGEST}` = '{manifest.scores.sha256}'")
    if before:
        return ExportedResult(result.name, before[0].info.run_id, len(cells), is_new=False)
    tags = _describe_lineage(location, result)
    whole = client.create_run(book, run_name=result.name, tags=tags)
    number = whole.info.run_id
    client.log_dict(number, manifest.definition, "definition.json")
    for name, cell in cells.items():
        tags = {"mlflow.parentRunId": number, "veilcast.cell": name, "veilcast.series": cell.series}
        run = client.create_run(book, run_name=name, tags=tags).info.run_id
        _log_cell(
            client, run, msgspec.to_builtins(cell.params), [row for row in scores.to_pylist() if row["cell"] == name]
        )
        client.set_terminated(run)
    # Last: a result counts as exported only if all of it is.
    client.set_tag(number, _DIGEST, manifest.scores.sha256)
    client.set_terminated(number)
    return ExportedResult(result.name, number, len(cells), is_new=True)


def _find_book(client: MlflowClient, name: str) -> str:
    book = client.get_experiment_by_name(f"veilcast/{name}")
    if book is None:
        return str(client.create_experiment(f"veilcast/{name}"))
    return str(book.experiment_id)


def _describe_lineage(location: Location, result: StoredResult) -> dict[str, str]:
    manifest = result.manifest
    tags = {
        "veilcast.stored": location.place,
        "veilcast.claim": result.experiment.claim,
        "veilcast.source": result.experiment.source,
        "veilcast.engine": manifest.engine,
        "veilcast.seeds": str(manifest.seeds),
        "veilcast.quick": str(manifest.quick).lower(),
        "veilcast.fingerprint": manifest.fingerprint,
        "veilcast.commit": manifest.commit + ("+changes" if manifest.changed else ""),
        "veilcast.command": manifest.command,
        "veilcast.master": manifest.means.master or "in process",
        **{f"veilcast.version.{library}": number for library, number in manifest.means.versions.items()},
        **{f"veilcast.data.{file}": digest for file, digest in manifest.data_sha256.items()},
        **{f"veilcast.verdict.{row.what}": f"{row.verdict}: {row.kind} {row.stated:g}, here {row.reproduced:g}"
           for row in result.verdicts},
    }  # fmt: skip
    return {_clean(name)[:_NAME_MAX]: value[:_TAG_MAX] for name, value in tags.items() if value}


def _log_cell(client: MlflowClient, run: str, params: Mapping[str, Any], scores: list[dict[str, Any]]) -> None:
    from mlflow.entities import Metric, Param

    steps = sorted({row["step"] for row in scores})
    whole = all(float(step).is_integer() for step in steps)
    given = {name: str(value) for name, value in params.items()}
    given["steps"] = ", ".join(f"{step:g}" for step in steps)
    found = []
    for row in scores:
        key = _clean(f"{row['attack']}.{row['metric']}" if row["attack"] else row["metric"])
        step = int(row["step"]) if whole else steps.index(row["step"])
        ends = {"": row["value"], ".low": row["low"], ".high": row["high"]}
        found += [Metric(f"{key}{end}", value, 0, step) for end, value in ends.items() if math.isfinite(value)]
    rows = [Param(_clean(name), value[:_PARAM_MAX]) for name, value in given.items()]
    for part in _cut(rows, _PARAMS_AT_ONCE):
        client.log_batch(run, params=part)
    for part in _cut(found, _METRICS_AT_ONCE):
        client.log_batch(run, metrics=part)


def _cut(rows: list[Any], most: int) -> Iterable[list[Any]]:
    return (rows[first : first + most] for first in range(0, len(rows), most))


def _clean(name: str) -> str:
    """The name with the letters that MLflow allows."""
    return _OTHER.sub("_", name)


_DIGEST: Final = "veilcast.scores_sha256"
_OTHER: Final = re.compile(r"[^\w\-. /:]")
_NAME_MAX: Final = 250
_TAG_MAX: Final = 5_000
_PARAM_MAX: Final = 6_000
_PARAMS_AT_ONCE: Final = 100
_METRICS_AT_ONCE: Final = 1_000
"""MLflow's limits."""

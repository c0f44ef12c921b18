"""Results in a real store of MLflow: parameters, scores, verdicts and lineage, each result once."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import msgspec
import pytest

from veilcast import lab
from veilcast.cli.main import main
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment.sweep import SweepResult
from veilcast.lab.report.mlflow_export import export_results
from veilcast.lab.storage.location import LocalDirectory

pytestmark = [pytest.mark.all_only, pytest.mark.filterwarnings("default:::mlflow")]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepResult]:
    out = tmp_path_factory.mktemp("exported")
    return out, lab.run(None, "mesh-fig12", out, seeds=2)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return (tmp_path / "store").as_uri()


def test_a_result_is_a_run_and_each_cell_a_run_below_it(result: tuple[Path, SweepResult], store: str) -> None:
    from mlflow import MlflowClient

    out, swept = result
    (exported,) = export_results(LocalDirectory(out), store)
    assert (exported.experiment, exported.cells, exported.is_new) == ("mesh-fig12", 11, True)
    client = MlflowClient(tracking_uri=store)
    whole = client.get_run(exported.run)
    tags = whole.data.tags
    assert tags["veilcast.fingerprint"] == swept.manifest.fingerprint
    assert tags["veilcast.stored"] == str(out.resolve())
    assert tags["veilcast.verdict.overlay at mu _ 0.6"].partition(":")[0] in ("fits", "partly", "not reproduced")
    book = [whole.info.experiment_id]
    below = client.search_runs(book, f"tags.`mlflow.parentRunId` = '{exported.run}'")
    runs = {run.data.tags["veilcast.cell"]: run for run in below}
    assert runs["mu=0.3"].data.params["mu"] == "0.3"
    wanted: dict[str, dict[str, float]] = {}
    for row in swept.scores.to_pylist():
        wanted.setdefault(row["cell"], {})[".".join(filter(None, (row["attack"], row["metric"])))] = row["value"]
    for cell, run in runs.items():
        values = {key: value for key, value in run.data.metrics.items() if not key.endswith((".low", ".high"))}
        assert values == wanted[cell]
    again = export_results(LocalDirectory(out), store)
    assert again == [exported._replace(is_new=False)]


def test_the_command_exports_and_names_what_is_missing(
    result: tuple[Path, SweepResult], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = result
    assert main(["lab", "export", "mlflow", str(out), "--uri", store, "--json"]) == 0
    (told,) = msgspec.json.decode(capsys.readouterr().out)["exported"]
    assert (told["experiment"], told["is_new"]) == ("mesh-fig12", True)
    with pytest.raises(ConfigError, match="has no result nope; it has mesh-fig12"):
        export_results(LocalDirectory(out), store, ["nope"])
    with pytest.raises(ConfigError, match="no MLflow is named"):
        export_results(LocalDirectory(out), "")


def test_errors_of_mlflow_are_told_in_one_line(
    result: tuple[Path, SweepResult], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with pytest.raises(StorageError, match="maintenance mode") as told:
        export_results(LocalDirectory(result[0]), store)
    assert "\n" not in str(told.value)
    imported = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "mlflow":
            raise ModuleNotFoundError("no mlflow", name="mlflow")
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match="pip install mlflow-skinny"):
        export_results(LocalDirectory(result[0]), store)

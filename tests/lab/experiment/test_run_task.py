"""What an executor makes of its numbers; a number that would spoil a mean is refused, with the run it is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from veilcast.errors import ConfigError, LocalError
from veilcast.lab.experiment.mesh_params import MeshFlows
from veilcast.lab.experiment.params import Measure, RunFunction
from veilcast.lab.experiment.task import DURATION_COLUMN, LISTED_COLUMN, RunTask

CELLS = tuple((f"mu={mu}", msgspec.json.encode(MeshFlows(mu=mu, cover="one"))) for mu in (0.1, 0.2))


def rows(runner: RunFunction, *numbers: int, data: str | None = None) -> list[dict[str, object]]:
    task = RunTask(CELLS, (20, 21, 25), runner, data)
    batches = task(iter([pa.RecordBatch.from_pydict({"id": numbers})]))
    found = [row for batch in batches for row in batch.to_pylist()]
    assert all(row.pop(DURATION_COLUMN) > 0 and row.pop(LISTED_COLUMN) == "" for row in found)
    return found


def mu_of(params: Any, seed: int, data: Path | None) -> list[Measure]:
    return [Measure("", "mu", 0.0, params.mu)]


def giving(*measures: Measure) -> RunFunction:
    return lambda params, seed, data: list(measures)


def test_a_number_is_a_cell_and_a_seed() -> None:
    found = rows(mu_of, 0, 2, 3, 5)
    assert [(row["cell"], row["seed"], row["value"]) for row in found] == [
        ("mu=0.1", 20, 0.1),
        ("mu=0.1", 25, 0.1),
        ("mu=0.2", 20, 0.2),
        ("mu=0.2", 25, 0.2),
    ]


def test_rows_leave_in_one_order_whatever_the_engine_does() -> None:
    measures = [Measure("leaf", "b", 1.0, 1.0), Measure("", "z", 0.0, 2.0), Measure("leaf", "b", 0.0, 3.0)]
    assert rows(giving(*measures), 1) == rows(giving(*reversed(measures)), 1)
    assert [row["value"] for row in rows(giving(*measures), 1)] == [2.0, 3.0, 1.0]


def test_the_data_folder_is_handed_on() -> None:
    def run(params: Any, seed: int, data: Path | None) -> list[Measure]:
        return [Measure("", "known", 0.0, float(data == Path("/some")))]

    assert [row["value"] for row in rows(run, 0, data="/some")] == [1.0]
    assert [row["value"] for row in rows(run, 0)] == [0.0]


@pytest.mark.parametrize(
    ("runner", "told"),
    [
        (giving(Measure("leaf", "auc", 0.0, float("nan"))), "cell mu=0.1, seed 21: leaf auc at 0.0 is nan"),
        (giving(Measure("", "auc", 0.0, 1.0), Measure("", "auc", 0.0, 2.0)), "auc at 0.0 is there twice"),
        (giving(), "nothing was measured"),
        (lambda params, seed, data: [1 // 0], "cell mu=0.1, seed 21: ZeroDivisionError: "),
    ],
)
def test_what_an_engine_gets_wrong_is_told_with_its_run(runner: RunFunction, told: str) -> None:
    with pytest.raises(LocalError, match=told) as error:
        rows(runner, 1)
    assert "\n" not in str(error.value)


def test_our_own_errors_stay_what_they_are() -> None:
    def run(params: Any, seed: int, data: Path | None) -> list[Measure]:
        raise ConfigError("the data folder lacks edges.csv")

    with pytest.raises(ConfigError, match=r"^the data folder lacks edges\.csv$"):
        rows(run, 0)


def test_a_run_multiplies_matrices_in_one_thread_and_gives_the_threads_back() -> None:
    seen: list[int] = []

    def count_threads(params: object, seed: int, data: Path | None) -> list[Measure]:
        seen.append(max(library["num_threads"] for library in threadpool_info()))
        return [Measure("x", "y", 0.0, 1.0)]

    with threadpool_limits(2):
        rows(count_threads, 0)
        assert {library["num_threads"] for library in threadpool_info()} == {2}
    assert set(seen) == {1}

"""Charts for notebooks: they are drawn from results, measures and guesses, and hold the numbers of those."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import vl_convert

from veilcast import lab
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.experiment.sweep import SweepResult
from veilcast.lab.report import notebook_charts
from veilcast.lab.tables import GuessRow, MeasureRow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return lab.run(None, "mesh-fig07", tmp_path_factory.mktemp("charted"), quick=True, seeds=2)


def values(chart: Any) -> list[dict[str, Any]]:
    """All rows in the chart; and it can be drawn."""
    spec = chart.to_dict()
    assert vl_convert.vegalite_to_svg(spec).startswith("<svg")
    return [row for rows in spec["datasets"].values() for row in rows]


def test_a_figure_has_its_curves_and_the_published_points(result: SweepResult) -> None:
    rows = values(lab.chart(result))
    published = [row for row in rows if "low" not in row]
    assert len(published) == 3
    assert {row["curve"] for row in published} <= {row["curve"] for row in rows if "low" in row}
    found = {row["value"] for row in result.scores.to_pylist()}
    assert {row["y"] for row in rows if "low" in row} <= found


def test_a_metric_of_a_result_is_drawn_by_attacker(result: SweepResult) -> None:
    rows = values(lab.chart(result, "accuracy_mesh"))
    wanted = {row["value"] for row in result.scores.to_pylist() if row["metric"] == "accuracy_mesh"}
    assert {row["y"] for row in rows} == wanted


def test_measures_are_summarised_and_one_seed_has_no_interval() -> None:
    found = [MeasureRow("", "c", 0, attack, "auc", step, 0.5) for attack in ("leaf", "closure") for step in (1.0, 2.0)]
    rows = values(lab.chart(tables.from_rows(MeasureRow, found)))
    assert {(row["attacker"], row["x"], row["low"]) for row in rows} == {
        (attack, step, None) for attack in ("leaf", "closure") for step in (1.0, 2.0)
    }
    single = tables.from_rows(MeasureRow, [each for each in found if each.step == 1.0])
    assert {row["x"] for row in values(lab.chart(single))} == {1.0}


def test_guesses_are_drawn_by_node_and_known_roles_have_a_colour() -> None:
    found = [GuessRow("r", "leaf", 1, 0, "", "subscriber", node, score) for node, score in (("a", 1.0), ("b", 0.2))]
    guesses = tables.from_rows(GuessRow, found)
    rows = values(lab.chart(guesses, roles={"subscriber": ["a"]}))
    assert {(row["node"], row["score"], row["role"]) for row in rows} == {("a", 1.0, "subscriber"), ("b", 0.2, "")}


def test_what_cannot_be_drawn_is_told_in_one_line(result: SweepResult, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no score is called 'auk'"):
        lab.chart(result, "auk")
    with pytest.raises(ConfigError, match="a chart shows a result, scores, measures or guesses"):
        lab.chart(pa.table({"x": [1]}))
    monkeypatch.setattr(notebook_charts, "ROWS_MAX", 1)
    with pytest.raises(ConfigError, match="a chart holds 1 rows at most"):
        lab.chart(result)

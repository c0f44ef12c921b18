"""Charts for notebooks: a figure of an experiment, scores beside their intervals, and the guesses of attackers.

Each function takes tables and returns an Altair chart, which a notebook shows and `chart.save("x.svg")` writes. Data
are values inside the chart, so a chart is for results and not for observations: at most `ROWS_MAX` rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import altair as alt
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.report.charts import make_chart
from veilcast.lab.report.figure_data import make_figure_data
from veilcast.lab.report.style import PALETTE
from veilcast.nearest import did_you_mean


def draw_figure(experiment: Experiment, scores: pa.Table, name: str = "") -> alt.LayerChart:
    """A figure of the experiment with published and earlier values; the first one, if no name is given."""
    figures = {figure.name: figure for figure in experiment.figures}
    if not figures:
        raise ConfigError("this experiment draws no figure; give its scores and the name of a metric")
    if name and name not in figures:
        raise ConfigError(f"there is no figure {name!r}; there are {', '.join(figures)}{did_you_mean(name, figures)}")
    plot = make_figure_data(experiment, figures[name or next(iter(figures))], ScoreTable(scores.to_pylist()))
    _check_rows(sum(len(line.points) for line in plot.lines))
    return make_chart(plot).properties(title=plot.title)


def draw_scores(scores: pa.Table, metric: str) -> alt.LayerChart | alt.FacetChart:
    """A metric of a table of `scores` over the steps, a colour for each attacker and a panel for each cell; single
    steps are points with whiskers."""
    known = sorted(set(scores["metric"].to_pylist()))
    if metric not in known:
        raise ConfigError(f"no score is called {metric!r}; there are {', '.join(known)}{did_you_mean(metric, known)}")
    rows = [
        {"attacker": row["attack"], "cell": row["cell"], "x": row["step"], "y": row["value"]}
        | _interval(row["low"], row["high"])
        for row in scores.to_pylist()
        if row["metric"] == metric
    ]
    y = alt.Y("y:Q", title=metric, scale=_scale(log=False))
    if len({row["x"] for row in rows}) > 1:
        chart = _draw_lines(rows, alt.X("x:Q", title="step"), y, "attacker")
    else:
        chart = _draw_lines(rows, alt.X("attacker:N", title=None, sort="-y"), y, "attacker", lines=False)
    return chart if len({row["cell"] for row in rows}) == 1 else chart.facet("cell:N", columns=3)


def draw_guesses(guesses: pa.Table, roles: Mapping[str, Iterable[str]] | None = None) -> alt.FacetChart:
    """The scores of nodes by each attacker, highest first. `roles` are the nodes by role, where the reader knows them:
    they are coloured."""
    if "node" not in guesses.column_names:
        raise ConfigError("a chart of guesses shows those about nodes")
    of = {node: role for role, nodes in (roles or {}).items() for node in nodes}
    rows = []
    for run, attack, role, node, score in zip(
        *(guesses[name].to_pylist() for name in ("run", "attack", "role", "node", "score")), strict=True
    ):
        rows.append(
            {"attacker": f"{attack} ({role})", "node": node, "score": score, "run": run, "role": of.get(node, "")}
        )
    chart = (
        alt.Chart(_values(rows))
        .mark_bar()
        .encode(
            x=alt.X("score:Q", title="score"),
            y=alt.Y("node:N", title=None, sort="-x"),
            color=_colour("role") if of else alt.value(PALETTE[0][0]),
            tooltip=["node:N", "score:Q", "run:N"],
        )
    )
    panels: alt.FacetChart = chart.facet("attacker:N", columns=3).resolve_scale(x="independent", y="independent")
    return panels


def _draw_lines(rows: list[dict[str, Any]], x: Any, y: Any, by: str, *, lines: bool = True) -> alt.LayerChart:
    base = alt.Chart(_values(rows)).encode(x=x, color=_colour(by))
    known = base.transform_filter("isValid(datum.low)")
    spread = known.mark_area(opacity=0.2) if lines else known.mark_rule()
    drawn = base.mark_line(point=True) if lines else base.mark_point(filled=True, size=70)
    told = [f"{by}:N", "y:Q", "low:Q", "high:Q"]
    chart: alt.LayerChart = alt.LayerChart(
        layer=[spread.encode(y=alt.Y("low:Q"), y2="high:Q"), drawn.encode(y=y, tooltip=told)]
    )
    return chart


def _interval(low: float, high: float) -> dict[str, float | None]:
    """One seed has no interval."""
    finite = math.isfinite(low) and math.isfinite(high)
    return {"low": low if finite else None, "high": high if finite else None}


def _scale(*, log: bool) -> alt.Scale:
    return alt.Scale(type="log") if log else alt.Scale(zero=False)


def _colour(field: str) -> alt.Color:
    return alt.Color(f"{field}:N", title=None, scale=alt.Scale(range=[light for light, _ in PALETTE]))


def _values(rows: list[dict[str, Any]]) -> alt.InlineData:
    _check_rows(len(rows))
    return alt.InlineData(values=rows)


def _check_rows(count: int) -> None:
    if count > ROWS_MAX:
        raise ConfigError(f"a chart holds {ROWS_MAX:,} rows at most, not {count:,}; choose some runs or attackers")


ROWS_MAX: Final = 20_000
"""Most rows in a chart: a page with more is slow."""

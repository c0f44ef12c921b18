"""A chart has every line, interval and stated value, in a picture, in words and as a description for other programs."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report import charts
from veilcast.lab.report.figure_data import FigureData, PlotLine, StatedMark

HOSTILE = "</script><script>alert(1)</script> & \"quotes\" 'too'"


def line(label: str = "BL", count: int = 5, style: Any = "line") -> PlotLine:
    points = (CurvePoint(x, 0.2 + 0.1 * x, 0.18 + 0.1 * x, 0.22 + 0.1 * x) for x in range(count))
    return PlotLine(label, style, tuple(points))


def figure(*lines: PlotLine, marks: tuple[StatedMark, ...] = (), **axes: bool) -> FigureData:
    return FigureData("Accuracy", "degree", "accuracy", lines, marks, **axes)


def marks_of(svg: str, name: str) -> list[str]:
    """The paths of all marks of a kind, such as `mark-symbol role-mark`, by the labels that readers are told."""
    tree = ElementTree.fromstring(svg)
    groups = [each for each in tree.iter() if name in each.get("class", "")]
    return [mark.get("aria-label", "") for group in groups for mark in group]


def test_every_point_of_every_line_is_drawn_with_its_interval() -> None:
    svg = charts.draw_standalone(figure(line(), line("PF", 3)))
    points = marks_of(svg, "mark-symbol role-mark")
    assert len(points) == 8
    assert len(marks_of(svg, "mark-area")) == 2
    assert len(marks_of(svg, "mark-line")) == 2


def test_a_line_of_points_has_whiskers_and_a_reference_has_neither_points_nor_an_interval() -> None:
    svg = charts.draw_standalone(figure(line(style="points")))
    assert len(marks_of(svg, "mark-rule role-mark")) == 5
    assert not marks_of(svg, "mark-line")
    bare = charts.draw_standalone(figure(line(style="reference")))
    assert not marks_of(bare, "mark-symbol role-mark")
    assert not marks_of(bare, "mark-area")


@pytest.mark.parametrize(("kind", "other"), [("published", "earlier"), ("earlier", "published")])
def test_a_stated_value_is_drawn_as_what_it_is(kind: str, other: str) -> None:
    marks = (StatedMark(kind, "at 3", 0, 3.0, 0.45), StatedMark(kind, "settles", 0, 2.5, None))
    svg = charts.draw_standalone(figure(line(), marks=marks))
    assert len(marks_of(svg, "mark-symbol role-mark")) == 6
    assert len(marks_of(svg, "mark-rule role-mark")) == 1
    assert f">{kind}<" in svg
    assert other not in svg.lower()


def test_a_value_that_has_no_place_leaves_a_gap() -> None:
    points = (
        CurvePoint(1.0, 5.0, 4.0, 6.0),
        CurvePoint(2.0, 0.0, -1.0, 1.0),
        CurvePoint(3.0, 7.0, -1.0, 8.0),
        CurvePoint(4.0, 8.0, 7.0, 9.0),
    )
    svg = charts.draw_standalone(figure(PlotLine("BL", "line", points), log_y=True))
    assert len(marks_of(svg, "mark-symbol role-mark")) == 3
    holes = (points[0], CurvePoint(2.0, math.nan, math.nan, math.nan), points[2])
    assert len(marks_of(charts.draw_standalone(figure(PlotLine("BL", "line", holes))), "mark-symbol role-mark")) == 2


def test_one_seed_has_no_interval() -> None:
    lone = PlotLine("BL", "line", tuple(CurvePoint(x, 0.5, -math.inf, math.inf) for x in range(3)))
    svg = charts.draw_standalone(figure(lone))
    assert len(marks_of(svg, "mark-symbol role-mark")) == 3
    assert "NaN" not in svg


def test_words_say_what_the_picture_shows() -> None:
    plot = figure(line(), line("nothing", 0), marks=(StatedMark("published", "at 3", 0, 3.0, 0.45),))
    assert charts.describe_figure(plot) == (
        "accuracy against degree. BL: from 0.2 at 0 to 0.6 at 4. nothing: no values. Published, at 3: 0.45 at 3."
    )
    assert json.loads(charts.write_specification(plot))["description"] == charts.describe_figure(plot)


def test_no_text_of_an_experiment_becomes_markup_or_script() -> None:
    plot = FigureData(HOSTILE, HOSTILE, HOSTILE, (line(HOSTILE),), (StatedMark("published", HOSTILE, 0, 1.0, 0.3),))
    for written in (charts.draw_standalone(plot), charts.draw_still(plot, 640), charts.write_specification(plot)):
        assert "<script" not in written
    assert HOSTILE in json.loads(charts.write_specification(plot))["description"]
    assert "</script" not in charts.chart_library()


def test_a_chart_of_a_page_follows_the_colours_of_the_page_and_one_that_stands_alone_has_its_own() -> None:
    plot = figure(line(), line("PF"), line("chance", style="reference"))
    inside, alone = charts.draw_still(plot, 640), charts.draw_standalone(plot)
    assert "var(--c0)" in inside
    assert "var(--c1)" in inside
    assert "var(--c2)" not in inside
    assert "var(" not in alone
    assert "<text" in alone
    assert "Accuracy" in alone


def test_curves_by_another_engine_are_points_in_the_colour_of_their_twins() -> None:
    twin = PlotLine("BL, machines", "points", line().points, twin=0)
    described = json.loads(charts.write_specification(figure(line(), line("PF"), twin), css=True))
    scales = re.findall(r'"range": (\["var.*?\])', json.dumps(described))
    assert json.loads(scales[0]) == ["var(--c0)", "var(--c1)", "var(--c0)"]


def test_a_chart_is_the_same_whenever_it_is_drawn() -> None:
    plot = figure(line(), marks=(StatedMark("earlier", "at 3", 0, 3.0, 0.45),))
    assert charts.draw_standalone(plot) == charts.draw_standalone(plot)
    assert charts.write_specification(plot, css=True) == charts.write_specification(plot, css=True)

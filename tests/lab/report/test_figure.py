"""A figure shows all that there is, inside its frame, to everybody; and is well formed whatever it is given."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import sample_results
from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report import figure
from veilcast.lab.report.figure import NARROW, WIDE, FigureSize
from veilcast.lab.report.figure_data import FigureData, PlotLine, StatedMark, make_figure_data

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title></svg><script>alert(1)</script>"


def line(label: str = "BL", count: int = 5, style: str = "line", rise: float = 0.1) -> PlotLine:
    points = [CurvePoint(float(k), 0.2 + rise * k, 0.18 + rise * k, 0.22 + rise * k) for k in range(count)]
    return PlotLine(label, style, tuple(points))  # type: ignore[arg-type]


def drawn(*lines: PlotLine, marks: tuple[StatedMark, ...] = (), size: FigureSize = WIDE, **axes: bool) -> Element:
    picture = FigureData("A title", "degree", "accuracy", lines, marks, **axes)
    return ElementTree.fromstring(figure.draw_embedded(picture, size, "x"))


def of_class(tree: Element, name: str) -> list[Element]:
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def test_a_line_has_a_band_a_path_and_a_marker_with_its_numbers_for_every_point() -> None:
    tree = drawn(line())
    assert len(of_class(tree, "band")) == 1
    assert len(of_class(tree, "line")) == 2  # The other is in the legend.
    told = [title.text for title in tree.iter("title")]
    assert "BL, degree 2: 0.4 [0.380, 0.420]" in told


def test_a_band_closes_at_points_that_have_no_interval() -> None:
    points = (CurvePoint(2.0, 0.6, 0.5, 0.7), CurvePoint(4.0, 1.0, 1.0, 1.0), CurvePoint(6.0, 1.0, math.nan, math.nan))
    (band,) = of_class(drawn(PlotLine("BL", "line", points)), "band")
    ends = re.findall(r"[ML]([\d.]+ [\d.]+)", band.get("d", ""))
    assert len(ends) == 6
    assert len(set(ends)) == 4


def test_lone_points_have_whiskers_and_a_reference_has_neither() -> None:
    assert len(of_class(drawn(line(style="points")), "whisker")) == 5
    bare = drawn(line(style="reference"))
    assert not of_class(bare, "whisker")
    assert not of_class(bare, "band")


def test_what_was_published_is_marked_on_its_curve_or_on_the_axis() -> None:
    tree = drawn(
        line(), marks=(StatedMark("published", "at 3", 0, 3.0, 0.45), StatedMark("published", "settles", 0, 2.5, None))
    )
    assert len(of_class(tree, "published")) == 3  # One is in the legend.
    assert len(of_class(tree, "rule")) == 1
    told = {title.text for title in tree.iter("title")}
    assert {"published: at 3, 0.45", "published: settles, at 2.5"} <= told


def test_an_earlier_value_is_drawn_as_such_and_never_as_published() -> None:
    tree = drawn(line(), marks=(StatedMark("earlier", "at 3", 0, 3.0, 0.45),))
    assert len(of_class(tree, "earlier")) == 2  # One is in the legend.
    assert not of_class(tree, "published")
    assert "published" not in " ".join(tree.itertext()).lower()


def test_the_legend_lies_above_the_frame_and_inside_the_picture() -> None:
    long = [line(f"a rather long label of curve number {number}") for number in range(10)]
    for size in (WIDE, NARROW):
        tree = drawn(*long, size=size)
        frame = float(of_class(tree, "in")[0].get("y", ""))
        rows = [group.get("transform", "") for group in of_class(tree, "legend")[0]]
        heights = [float(row.split()[1].rstrip(")")) for row in rows]
        assert len(heights) == 10
        assert max(heights) + size.font < frame


def test_a_label_longer_than_the_picture_is_cut_and_told_in_full() -> None:
    label = "x" * 300
    tree = drawn(line(label), size=NARROW)
    entry = of_class(tree, "legend")[0][0]
    assert entry.findtext("title") == label
    assert len(entry.findtext("text") or "") < 60


def test_any_two_of_ten_curves_differ_in_colour_dash_and_marker() -> None:
    tree = drawn(*(line(f"curve {number}") for number in range(10)))
    entries = list(of_class(tree, "legend")[0])
    for seen in (
        [of_class(entry, "line")[0].get("stroke-dasharray") for entry in entries],
        [next(iter(entry.iter("g"))).findall("g")[0].get("class") for entry in entries],
        [of_class(entry, "marker")[0].get("d") for entry in entries],
    ):
        assert len(set(seen)) == 10


def test_an_eleventh_curve_takes_a_colour_again() -> None:
    assert drawn(*(line(f"curve {number}") for number in range(23))) is not None


def test_a_value_that_has_no_place_leaves_a_gap() -> None:
    points = (
        CurvePoint(1.0, 5.0, 4.0, 6.0),
        CurvePoint(2.0, 0.0, -1.0, 1.0),
        CurvePoint(3.0, 7.0, -1.0, 8.0),
        CurvePoint(4.0, 8.0, 7.0, 9.0),
    )
    tree = drawn(PlotLine("BL", "line", points), log_y=True)
    assert len(of_class(tree, "pointer")) == 3
    holes = (
        CurvePoint(1.0, 5.0, 4.0, 6.0),
        CurvePoint(2.0, math.nan, math.nan, math.nan),
        CurvePoint(3.0, 7.0, 6.0, 8.0),
    )
    assert len(of_class(drawn(PlotLine("BL", "line", holes)), "pointer")) == 2


@pytest.mark.parametrize("lines", [(), (PlotLine("none", "line", ()),), (line(count=1),)])
def test_a_figure_with_little_or_nothing_in_it_is_still_a_figure(lines: tuple[PlotLine, ...]) -> None:
    assert drawn(*lines).get("role") == "img"


def test_who_cannot_see_it_is_told_what_it_shows() -> None:
    tree = drawn(line(), line("nothing", 0), marks=(StatedMark("published", "at 3", 0, 3.0, 0.45),))
    ids = {element.get("id"): element.text for element in tree.iter() if element.get("id")}
    title, description = (ids[name] for name in tree.get("aria-labelledby", "").split())
    assert title == "A title"
    assert description == (
        "accuracy against degree. BL: from 0.2 at 0 to 0.6 at 4. nothing: no values. Published, at 3: 0.45 at 3."
    )


def test_hostile_words_stay_words() -> None:
    picture = FigureData(HOSTILE, HOSTILE, HOSTILE, (line(HOSTILE),), (StatedMark("published", HOSTILE, 0, 1.0, 0.3),))
    tree = ElementTree.fromstring(figure.draw_standalone(picture, "x"))
    assert not [element for element in tree.iter() if element.tag.endswith("script")]


def test_a_file_of_its_own_brings_its_size_title_and_both_sets_of_colours() -> None:
    experiment = sample_results.make_experiments()["mesh-degrees"]
    made = sample_results.make_result("mesh-degrees", experiment)
    text = figure.draw_standalone(make_figure_data(experiment, experiment.figures[0], made.scores), "x")
    tree = ElementTree.fromstring(text)
    assert tree.tag == f"{SVG}svg"
    assert float(tree.get("width", "")) > 0
    assert "prefers-color-scheme:dark" in (tree.findtext(f"{SVG}style") or "")
    assert [element.text for element in of_class(tree, "heading")] == [experiment.figures[0].title]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.floats(0, 100)), max_size=8), max_size=4
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([WIDE, NARROW]),
)
def test_nothing_is_drawn_outside_the_picture(
    curves: list[list[tuple[float, float, float]]], log_x: bool, log_y: bool, size: FigureSize
) -> None:
    lines = [
        PlotLine(str(number), "line", tuple(CurvePoint(x, y, y - half, y + half) for x, y, half in points))
        for number, points in enumerate(curves)
    ]
    tree = drawn(*lines, size=size, log_x=log_x, log_y=log_y)
    _, _, width, height = map(float, tree.get("viewBox", "").split())
    for path in of_class(tree, "band") + of_class(tree, "line"):
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d", "")):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height
    assert all(math.isfinite(float(circle.get("cy", ""))) for circle in of_class(tree, "pointer"))

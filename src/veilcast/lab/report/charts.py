"""A figure as a chart of Vega-Lite: lines with their intervals, and published and earlier values.

One description serves four times: the page shows it as still SVG, which needs no script; a script of the page makes it
interactive (tooltips, zoom, a click on the legend); a notebook shows it; and it is written beside the page, as SVG and
as JSON, for other programs. Colours are names of CSS variables where the page's style defines them, so a chart follows
light, dark and print; a chart that stands alone has the colours themselves.

Lines differ in colour, dash and marker. A published value is a diamond, and an earlier one a dashed ring: both are
open, so that our value is visible inside. A value without a place on a logarithmic axis is left out, and its line has a
gap there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import altair as alt
import vl_convert

from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report import style
from veilcast.lab.report.figure_data import FigureData, PlotLine, StatedMark, has_interval
from veilcast.lab.report.markup import Markup, replace_unwritable
from veilcast.lab.report.number_format import format_interval, format_number


def make_chart(plot: FigureData, *, width: int | str = 640, css: bool = False) -> alt.LayerChart:
    """The chart of a figure; `width` is "container" for the width of the element that it stands in. With `css`, colours
    are variables of the page."""
    plot = _writable(plot)
    rows = [row for line in plot.lines for row in _line_rows(plot, line)]
    marks = [row for mark in plot.marks for row in _mark_rows(plot, mark)]
    colours = _Colours(plot.lines, css=css)
    x = alt.X("x:Q", title=plot.x_label, scale=_scale(log=plot.log_x, padding=10))
    y = alt.Y("y:Q", title=plot.y_label, scale=_scale(log=plot.log_y))
    labels = [line.label for line in plot.lines]
    colour = alt.Color("curve:N", title=None, sort=labels, scale=alt.Scale(domain=labels, range=colours.of_lines))
    chosen = alt.selection_point(fields=["curve"], bind="legend")
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=x, color=colour, opacity=alt.condition(chosen, alt.value(1), alt.value(0.12))
    )
    lines = base.transform_filter("datum.style != 'points'")
    known = base.transform_filter("isValid(datum.low) && datum.style != 'reference'")
    told = ["curve:N", alt.Tooltip("x:Q", title=plot.x_label), alt.Tooltip("told:N", title=plot.y_label)]
    layers: list[alt.Chart] = [
        known.transform_filter("datum.style == 'line'")
        .mark_area(fillOpacity=0.17, stroke=None)
        .encode(y="low:Q", y2="high:Q"),
        known.transform_filter("datum.style == 'points'").mark_rule(strokeWidth=1.4).encode(y="low:Q", y2="high:Q"),
        lines.mark_line(strokeWidth=1.9, invalid="break-paths-show-path-domains").encode(
            y=y, strokeDash=alt.StrokeDash("curve:N", title=None, sort=labels, scale=_by_line(labels, _DASHES))
        ),
        base.transform_filter("datum.style != 'reference'")
        .mark_point(filled=True, size=45, stroke=colours.paper, strokeWidth=0.7)
        .encode(
            y=y, tooltip=told, shape=alt.Shape("curve:N", title=None, sort=labels, scale=_by_line(labels, _MARKERS))
        ),
        *_stated_layers(marks, x, y, colour, colours.surface("ink")),
    ]
    chart: alt.LayerChart = (
        alt.layer(*layers)
        .add_params(chosen)
        .properties(width=width, height=_HEIGHT, description=describe_figure(plot))
        .resolve_scale(size="independent")
        .configure(**_config(colours, narrow=width == "container" or int(width) < 400))
    )
    return chart.interactive() if width == "container" else chart


def draw_still(plot: FigureData, width: int) -> Markup:
    """The chart as SVG inside a page."""
    svg = vl_convert.vegalite_to_svg(_describe(make_chart(plot, width=width, css=True)))
    return Markup(svg.replace("<svg ", '<svg role="img" ', 1).replace('class="marks"', 'class="plot"', 1))


def draw_standalone(plot: FigureData) -> str:
    """The chart as an SVG file, with its title."""
    chart = make_chart(plot).properties(title=replace_unwritable(plot.title), background=style.PAPER[0])
    return str(vl_convert.vegalite_to_svg(_describe(chart))) + "\n"


def write_specification(plot: FigureData, *, css: bool = False) -> str:
    """The chart as JSON of Vega-Lite. It holds no `<`, so that it can stand in a page."""
    width: int | str = "container" if css else 640
    text = json.dumps(_describe(make_chart(plot, width=width, css=css)), sort_keys=True)
    return text.replace("<", "\\u003c")


@cache
def chart_library() -> str:
    """The script of Vega, Vega-Lite and Vega-Embed, which makes charts interactive without a network."""
    return str(vl_convert.javascript_bundle(_GLOBALS)).replace("</script", "<\\/script")


def describe_figure(plot: FigureData) -> str:
    """The picture in words: the ends of each line, and the published and earlier values."""
    said = [f"{plot.y_label} against {plot.x_label}."]
    for line in plot.lines:
        if not line.points:
            said.append(f"{line.label}: no values.")
            continue
        first, last = line.points[0], line.points[-1]
        ends = f"{format_number(first.value)} at {_number(first.x)}"
        if len(line.points) > 1:
            ends = f"from {ends} to {format_number(last.value)} at {_number(last.x)}"
        said.append(f"{line.label}: {ends}.")
    for mark in plot.marks:
        at = _number(mark.x) if mark.y is None else f"{format_number(mark.y, 4)} at {_number(mark.x)}"
        said.append(f"{mark.kind.capitalize()}, {mark.what}: {at}.")
    return " ".join(said)


class _Colours:
    """The colours of a chart; references are grey, and all other lines take the next colour."""

    def __init__(self, lines: Sequence[PlotLine], *, css: bool) -> None:
        names = iter(range(len(lines)))
        numbers: list[int | None] = []
        for line in lines:
            if line.twin is not None:
                numbers.append(numbers[line.twin])
            else:
                numbers.append(None if line.style == "reference" else next(names) % len(style.PALETTE))
        self._css = css
        self.of_lines = [
            self.surface("soft") if number is None else self._named(f"c{number}", style.PALETTE[number])
            for number in numbers
        ]
        self.paper = self.surface("paper")

    def surface(self, name: str) -> str:
        return self._named(name, style.SURFACES[name])

    def _named(self, name: str, pair: tuple[str, str]) -> str:
        return f"var(--{name})" if self._css else pair[0]


def _describe(chart: alt.LayerChart) -> dict[str, Any]:
    """The chart for Vega-Lite, with its legends one below the other; Altair's schema does not know how to say that."""
    described: dict[str, Any] = chart.to_dict()
    described["config"]["legend"]["layout"] = {"top": {"anchor": "start", "direction": "vertical"}}
    return described


def _stated_layers(marks: list[dict[str, Any]], x: alt.X, y: alt.Y, colour: alt.Color, ink: str) -> Iterator[alt.Chart]:
    if not marks:
        return
    base = alt.Chart(alt.InlineData(values=marks)).encode(x=x, color=colour, tooltip=["kind:N", "what:N", "x:Q", "y:Q"])
    for kind, (shape, dash) in _STATED.items():
        if all(row["kind"] != kind for row in marks):
            continue
        own = base.transform_filter(f"datum.kind == '{kind}'")
        yield own.transform_filter("!isValid(datum.y)").mark_rule(strokeDash=[2, 4], strokeWidth=1.4)
        # A scale of its own gives the kind a line in the legend.
        size = alt.Size(
            "kind:O",
            title=None,
            scale=alt.Scale(type="ordinal", domain=[kind], range=[190]),
            legend=alt.Legend(symbolType=shape, symbolFillColor="transparent", symbolStrokeColor=ink, symbolDash=dash),
        )
        open_point = own.transform_filter("isValid(datum.y)").mark_point(
            shape=shape, filled=False, strokeWidth=2, strokeDash=dash
        )
        yield open_point.encode(y=y, size=size)


def _line_rows(plot: FigureData, line: PlotLine) -> Iterator[dict[str, Any]]:
    for point in line.points:
        shown = _is_shown(point.x, log=plot.log_x) and _is_shown(point.value, log=plot.log_y)
        yield {
            "curve": line.label,
            "style": line.style,
            "x": point.x if shown else None,
            "y": point.value if shown else None,
            "told": f"{format_number(point.value, 4)} {format_interval(point.value, point.low, point.high)}".strip(),
            **(_interval(point, log=plot.log_y) if shown else {"low": None, "high": None}),
        }


def _mark_rows(plot: FigureData, mark: StatedMark) -> Iterator[dict[str, Any]]:
    if _is_shown(mark.x, log=plot.log_x) and (mark.y is None or _is_shown(mark.y, log=plot.log_y)):
        yield {"curve": plot.lines[mark.line].label, "kind": mark.kind, "what": mark.what, "x": mark.x, "y": mark.y}


def _interval(point: CurvePoint, *, log: bool) -> dict[str, float | None]:
    """One seed has no interval; on a logarithmic axis, an interval that reaches zero ends at our value."""
    if not has_interval(point):
        return {"low": None, "high": None}
    return {"low": point.low if _is_shown(point.low, log=log) else point.value, "high": point.high}


def _writable(plot: FigureData) -> FigureData:
    """The same with texts that SVG can hold: others end the process that draws."""
    return replace(
        plot,
        x_label=replace_unwritable(plot.x_label),
        y_label=replace_unwritable(plot.y_label),
        lines=tuple(replace(line, label=replace_unwritable(line.label)) for line in plot.lines),
        marks=tuple(replace(mark, what=replace_unwritable(mark.what)) for mark in plot.marks),
    )


def _is_shown(value: float, *, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _scale(*, log: bool, padding: float = 0) -> alt.Scale:
    """With padding, in pixels, marks at the ends of the axis are whole."""
    if log:
        return alt.Scale(type="log", nice=False, padding=padding)
    return alt.Scale(zero=False, nice=not padding, padding=padding)


def _by_line(labels: Sequence[str], values: Sequence[Any]) -> alt.Scale:
    return alt.Scale(domain=list(labels), range=[values[number % len(values)] for number in range(len(labels))])


def _config(colours: _Colours, *, narrow: bool) -> dict[str, Any]:
    ink, soft, faint = (colours.surface(name) for name in ("ink", "soft", "faint"))
    text = {
        "labelColor": soft,
        "titleColor": ink,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    return {
        "background": "transparent",
        "font": _FONT,
        "axis": {**text, "gridColor": faint, "domainColor": soft, "tickColor": soft},
        "legend": {
            "orient": "top",
            "columns": 1 if narrow else 2,
            "labelColor": ink,
            "labelFontSize": 12,
            "labelLimit": 230 if narrow else 300,
            "symbolSize": 90,
        },
        "title": {"color": ink, "anchor": "start", "fontSize": 14},
        "view": {"stroke": None},
    }


def _number(x: float) -> str:
    return format_number(x, 6)


_GLOBALS: Final = "window.vegaEmbed = vegaEmbed;"
"""What the library gives to other scripts of the page."""
_HEIGHT: Final = 300
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_DASHES: Final = (
    [1, 0],
    [8, 3],
    [2.5, 2.5],
    [9, 3, 2, 3],
    [5, 3],
    [12, 3, 2, 3, 2, 3],
    [1.5, 3],
    [14, 4],
    [6, 2, 1.5, 2],
)
_MARKERS: Final = (
    *("circle", "square", "triangle-up", "triangle-down", "cross"),
    *("diamond", "triangle-left", "triangle-right", "stroke", "wedge"),
)
_STATED: Final = {"published": ("diamond", [1, 0]), "earlier": ("circle", [3, 2])}
"""Shape and dash of stated values."""

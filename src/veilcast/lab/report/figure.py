"""One figure as SVG: frame, ticks and grid, lines with their intervals, and the published and earlier points on top.

A figure has one of two sizes, for a page and for a phone: letters keep their size, and the frame takes the rest. A line
has a band for the interval of its mean; single points have whiskers. Every point has its numbers in a tooltip, and a
description has them for screen readers. A separate file contains its own style; inside the page, the page's style
applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report import axes, legend, shapes, style
from veilcast.lab.report.figure_data import FigureData, PlotLine, StatedMark, has_interval
from veilcast.lab.report.markup import Markup, join, tag
from veilcast.lab.report.number_format import format_interval, format_number
from veilcast.lab.report.text_width import row_height, shorten_text, text_width


@dataclass(frozen=True)
class FigureSize:
    width: float
    height: float
    """Height of the frame, without labels and legend."""
    font: float


WIDE: Final = FigureSize(720, 330, 13)
NARROW: Final = FigureSize(340, 250, 11.5)


def draw_embedded(plot: FigureData, size: FigureSize, name: str) -> Markup:
    """An SVG element for the page. The name makes its ids unique there."""
    return _Canvas(plot, size, name, titled=False).svg()


def draw_standalone(plot: FigureData, name: str) -> str:
    """A complete SVG file."""
    return _Canvas(plot, WIDE, name, titled=True).svg()


class _Canvas:
    """The layout of one figure; y grows downwards, as in SVG."""

    def __init__(self, plot: FigureData, size: FigureSize, name: str, *, titled: bool) -> None:
        self.plot, self.size, self.name, self.titled = plot, size, name, titled
        self.colours = _colours(plot.lines)
        # In the page, the text has the margin.
        self.edge = _EDGE if titled else 1.0
        self.inner = size.width - 2 * self.edge
        self.entries = legend.lay_out_rows(list(self._entries()), self.inner, size.font)
        self.y = axes.vertical_axis(list(_heights(plot)), log=plot.log_y, wanted=max(3, int(size.height / 48)))
        self.left = self.edge + max(text_width(tick.text, size.font) for tick in self.y.ticks) + 8
        room = (self.edge + self.inner - self.left) / text_width("0", size.font)
        self.x = axes.horizontal_axis(list(_across(plot)), log=plot.log_x, room=int(room))
        # Half of the last label is beyond the frame.
        self.right = self.edge + self.inner - text_width(self.x.ticks[-1].text, size.font) / 2
        row = row_height(size.font)
        self.legend = self.edge + 1.6 * row * titled
        self.top = self.legend + row * len(self.entries) + _ABOVE
        self.bottom = self.top + size.height
        self.height = self.bottom + 2 * row + 10 + self.edge / 2

    def svg(self) -> Markup:
        ids = [f"{self.name}-title", f"{self.name}-desc"]
        head = join(tag("title", self.plot.title, id=ids[0]), tag("desc", _description(self.plot), id=ids[1]))
        own: dict[str, str | float | None] = {}
        if self.titled:
            # A separate file must state its namespace, size and colours.
            own = {"xmlns": "http://www.w3.org/2000/svg", "width": self.size.width, "height": self.height}
            paper = tag("rect", width="100%", height="100%", class_="paper")
            font = 1.2 * self.size.font
            words = shorten_text(self.plot.title, self.inner, font)
            shown = tag("text", words, x=self.edge, y=font + self.edge / 2, class_="heading")
            head = join(head, tag("style", Markup(style.COLOURS + style.FIGURE)), paper, shown)
        body = (
            self._grid(),
            legend.draw_legend(self.entries, self.edge, self.legend, self.inner, self.size.font),
            *(self._band(number, line) for number, line in enumerate(self.plot.lines)),
            *(self._rule(mark) for mark in self.plot.marks if mark.y is None),
            *(self._line(number, line) for number, line in enumerate(self.plot.lines)),
            *(self._points(number, line) for number, line in enumerate(self.plot.lines)),
            *(self._stated(mark, mark.y) for mark in self.plot.marks if mark.y is not None),
        )
        return tag(
            "svg",
            head,
            *body,
            **own,
            viewBox=f"0 0 {self.size.width:g} {self.height:.0f}",
            class_="plot",
            role="img",
            aria_labelledby=" ".join(ids),
            font_size=self.size.font,
        )

    def _across(self, value: float) -> float:
        return self.left + self.x.place(value) * (self.right - self.left)

    def _down(self, value: float) -> float:
        return self.bottom - self.y.place(value) * (self.bottom - self.top)

    def _grid(self) -> Markup:
        """Grid lines, ticks with their labels, and the names of the axes."""
        font = self.size.font
        parts = [
            tag("rect", x=self.left, y=self.top, width=self.right - self.left, height=self.size.height, class_="in")
        ]
        for tick in self.y.ticks:
            y = self._down(tick.value)
            parts.append(tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", tick.text, x=self.left - 8, y=y + font * 0.35, class_="end"))
        for tick in self.x.ticks:
            x = self._across(tick.value)
            parts.append(tag("line", x1=x, x2=x, y1=self.bottom, y2=self.bottom + 5, class_="tick"))
            parts.append(tag("text", tick.text, x=x, y=self.bottom + 8 + font, class_="middle"))
        parts.append(tag("line", x1=self.left, x2=self.right, y1=self.bottom, y2=self.bottom, class_="axis"))
        names = [shorten_text(name, self.inner, font) for name in (self.plot.x_label, self.plot.y_label)]
        middle, under = self.edge + self.inner / 2, self.bottom + 8 + font + row_height(font)
        parts.append(tag("text", names[0], x=middle, y=under, class_="name middle"))
        parts.append(tag("text", names[1], x=self.edge, y=self.top - 12, class_="name"))
        return tag("g", *parts, aria_hidden="true")

    def _band(self, number: int, line: PlotLine) -> Markup:
        if line.style != "line":
            return Markup()
        areas = []
        for run in self._runs(line):
            if len(run) > 1 and any(has_interval(point) for point in run):
                ends = [(point.low, point.high) if has_interval(point) else (point.value,) * 2 for point in run]
                upper = [self._at(point.x, self.y.clamp(high)) for point, (_, high) in zip(run, ends, strict=True)]
                lower = [self._at(point.x, self.y.clamp(low)) for point, (low, _) in zip(run, ends, strict=True)]
                areas.append(tag("path", d="M" + "L".join(upper + lower[::-1]) + "z", class_="band"))
        return tag("g", *areas, class_=self.colours[number])

    def _line(self, number: int, line: PlotLine) -> Markup:
        if line.style == "points":
            return Markup()
        paths = [
            tag("path", d="M" + "L".join(self._at(point.x, point.value) for point in run), class_="line")
            for run in self._runs(line)
            if len(run) > 1
        ]
        return tag("g", *paths, class_=self.colours[number], stroke_dasharray=shapes.dash_pattern(number))

    def _points(self, number: int, line: PlotLine) -> Markup:
        shown = [point for run in self._runs(line) for point in run]
        stride = math.ceil(len(shown) / _MARKERS_MAX) if line.style == "line" else 1
        parts = []
        for place, point in enumerate(shown):
            x, y = self._across(point.x), self._down(point.value)
            whisker = self._whisker(x, point) if line.style == "points" and has_interval(point) else ""
            marker = shapes.draw_marker(number, x, y) if line.style != "reference" and place % stride == 0 else ""
            # The area in which a pointer shows the tooltip.
            near = tag("circle", cx=x, cy=y, r=_NEAR, class_="pointer")
            parts.append(tag("g", tag("title", _tooltip(self.plot, line, point)), whisker, near, marker))
        return tag("g", *parts, class_=self.colours[number])

    def _whisker(self, x: float, point: CurvePoint) -> Markup:
        low, high = (self._down(self.y.clamp(end)) for end in (point.low, point.high))
        shape = f"M{x:.2f} {low:.2f}V{high:.2f}M{x - 4:.2f} {low:.2f}h8M{x - 4:.2f} {high:.2f}h8"
        return tag("path", d=shape, class_="whisker")

    def _stated(self, mark: StatedMark, y: float) -> Markup:
        if not (self.x.shows(mark.x) and self.y.shows(y)):
            return Markup()
        told = f"{mark.kind}: {mark.what}, {format_number(y, 4)}"
        shape = shapes.draw_stated(mark.kind, self._across(mark.x), self._down(y))
        return tag("g", tag("title", told), shape, class_=self.colours[mark.line])

    def _rule(self, mark: StatedMark) -> Markup:
        """A stated place on the horizontal axis: a line across, with its shape on the axis."""
        if not self.x.shows(mark.x):
            return Markup()
        x = self._across(mark.x)
        told = f"{mark.kind}: {mark.what}, at {_number(mark.x)}"
        line = tag("line", x1=x, x2=x, y1=self.top, y2=self.bottom, class_="rule")
        return tag(
            "g", tag("title", told), line, shapes.draw_stated(mark.kind, x, self.bottom), class_=self.colours[mark.line]
        )

    def _entries(self) -> Iterator[legend.LegendEntry]:
        for number, line in enumerate(self.plot.lines):
            drawn = tag("line", x1=0, x2=24, y1=0, y2=0, class_="line", stroke_dasharray=shapes.dash_pattern(number))
            marked = shapes.draw_marker(number, 12, 0)
            sample = {"line": join(drawn, marked), "points": marked, "reference": drawn}[line.style]
            yield legend.LegendEntry(tag("g", sample, class_=self.colours[number]), line.label)
        for kind in dict.fromkeys(mark.kind for mark in self.plot.marks):
            yield legend.LegendEntry(tag("g", shapes.draw_stated(kind, 12, 0), class_="ink"), kind)

    def _runs(self, line: PlotLine) -> Iterator[list[CurvePoint]]:
        """The stretches of a line without a gap. A value without a place makes a gap."""
        run: list[CurvePoint] = []
        for point in line.points:
            if self.x.shows(point.x) and self.y.shows(point.value):
                run.append(point)
            elif run:
                yield run
                run = []
        if run:
            yield run

    def _at(self, x: float, y: float) -> str:
        return f"{self._across(x):.2f} {self._down(y):.2f}"


def _colours(lines: Sequence[PlotLine]) -> list[str]:
    """A class for each line: references are grey, all others take the next colour."""
    taken, classes = 0, []
    for line in lines:
        if line.style == "reference":
            classes.append("grey")
        else:
            classes.append(f"c{taken % len(style.PALETTE)}")
            taken += 1
    return classes


def _heights(plot: FigureData) -> Iterator[float]:
    for line in plot.lines:
        for point in line.points:
            yield point.value
            if has_interval(point) and line.style != "reference":
                yield from (point.low, point.high)
    yield from (mark.y for mark in plot.marks if mark.y is not None)


def _across(plot: FigureData) -> Iterator[float]:
    yield from (point.x for line in plot.lines for point in line.points)
    yield from (mark.x for mark in plot.marks)


def _tooltip(plot: FigureData, line: PlotLine, point: CurvePoint) -> str:
    bounds = format_interval(point.value, point.low, point.high)
    return f"{line.label}, {plot.x_label} {_number(point.x)}: {format_number(point.value, 4)} {bounds}".strip()


def _description(plot: FigureData) -> str:
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


def _number(x: float) -> str:
    return format_number(x, 6)


_EDGE: Final = 14.0
_ABOVE: Final = 34.0
"""Space between the legend and the frame, for the name of the vertical axis."""

_NEAR: Final = 9.0
_MARKERS_MAX: Final = 16

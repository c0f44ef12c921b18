"""The tables of the page: stated numbers beside ours with the verdict, and the numbers behind a figure.

Published numbers, numbers of earlier runs, and checks of our own stand in tables of their own.

A verdict is a word and a shape, never a colour alone. If it differs from the expected one, the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report.figure_data import FigureData
from veilcast.lab.report.markup import Markup, join, tag
from veilcast.lab.report.number_format import format_interval, format_like, format_number, format_signed
from veilcast.lab.report.shapes import draw_sign
from veilcast.lab.tables import VerdictRow


def render_verdicts(rows: Sequence[VerdictRow]) -> Markup:
    tables = [
        join(tag("h3", title), _render_kind([row for row in rows if row.kind == kind], _COLUMN[kind]))
        for kind, title in _TITLES.items()
        if any(row.kind == kind for row in rows)
    ]
    compares = {_statistic(row)[1] for row in rows}
    notes = {
        _BOUND: bool(compares & {"at most", "at least"}),
        _CHANCE: "not told from" in compares,
        _NEAR: any(row.verdict == "near" for row in rows),
    }
    return join(*tables, *(tag("p", said, class_="small") for said, needed in notes.items() if needed))


def _render_kind(rows: Sequence[VerdictRow], column: str) -> Markup:
    head = tag(
        "tr",
        tag("th", "What", scope="col"),
        *(tag("th", name, scope="col", class_="number") for name in (column, "Reproduced", "Difference")),
        tag("th", "Verdict", scope="col"),
    )
    return tag("table", tag("thead", head), tag("tbody", *map(_verdict, rows)), class_="verdicts")


def render_numbers(plot: FigureData) -> Markup:
    """The values of each line over x, as a table."""
    places = sorted({point.x for line in plot.lines for point in line.points})
    at = [{point.x: point for point in line.points} for line in plot.lines]
    head = tag(
        "tr",
        tag("th", plot.x_label, scope="col"),
        *(tag("th", line.label, scope="col", class_="number") for line in plot.lines),
    )
    body = [
        tag(
            "tr",
            tag("th", format_number(x, 6), scope="row"),
            *(tag("td", _point(points.get(x)), class_="number") for points in at),
        )
        for x in places
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    # A wide table scrolls sideways, also by keyboard.
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"{plot.title}: numbers")


def verdict_class(verdict: str) -> str:
    """The CSS class of a verdict."""
    return verdict.replace(" ", "-")


def describe_both(row: VerdictRow) -> str:
    """Both numbers in a sentence."""
    return f"{_CALLED[row.kind]} {_stated_text(row)}, reproduced {_value(row, row.reproduced)}"


def _verdict(row: VerdictRow) -> Markup:
    # On a phone each cell is a row, with its column's name before it; the inner span keeps it together.
    why = row.why if row.verdict != "fits" else ""
    numbers = tag(
        "tr",
        tag("td", tag("span", row.what, _note(row.origin), _aim(row))),
        tag("td", _stated_text(row), class_="number", data_name=_COLUMN[row.kind]),
        tag("td", tag("span", _reproduced_cell(row)), class_="number", data_name="Reproduced"),
        tag("td", tag("span", _difference(row)), class_="number", data_name="Difference"),
        tag("td", tag("span", _word(row.verdict), _surprise(row)), data_name="Verdict"),
        class_="explained" if why else None,
    )
    return join(numbers, tag("tr", tag("td", why, colspan="5", class_="why small"))) if why else numbers


def _word(verdict: str) -> Markup:
    return tag("span", draw_sign(verdict), verdict, class_=f"verdict {verdict_class(verdict)}")


def _aim(row: VerdictRow) -> Markup:
    """The statistic of the curve, and the margin within which the number counts as equal."""
    statistic, compare = _statistic(row)
    margin = {"": "near within", "not told from": "known to"}.get(compare, "")
    return _note("; ".join(filter(None, [_STATISTICS.get(statistic, ""), _margin(row, margin)])))


def _margin(row: VerdictRow, words: str) -> str:
    return f"{words} {format_number(row.within)}" if words and row.within else ""


def _stated_text(row: VerdictRow) -> str:
    return f"{_statistic(row)[1]} {_value(row, row.stated)}".strip()


def _statistic(row: VerdictRow) -> tuple[str, str]:
    """The statistic, and the comparison if the number is a bound and not a value."""
    statistic, _, compare = row.statistic.partition(", ")
    return statistic, compare


def _difference(row: VerdictRow) -> Markup:
    return join(format_signed(row.difference, _scale(row)))


def _reproduced_cell(row: VerdictRow) -> Markup:
    return join(_value(row, row.reproduced), _note(format_interval(_scale(row), row.low, row.high)))


def _surprise(row: VerdictRow) -> Markup:
    return _note("" if row.verdict == row.expected else f"expected: {row.expected}")


def _value(row: VerdictRow, value: float) -> str:
    if math.isinf(value):
        return "never"
    return format_number(value, 4) if value == row.stated else format_like(value, _scale(row))


def _scale(row: VerdictRow) -> float:
    """The number that sets the rounding of a row."""
    return row.reproduced if math.isfinite(row.reproduced) and row.reproduced else row.stated


def _point(point: CurvePoint | None) -> Markup:
    if point is None:
        return tag("span", "\u2013")
    return tag("span", format_number(point.value, 4), _note(format_interval(point.value, point.low, point.high)))


def _note(said: str) -> Markup:
    return tag("span", said, class_="small") if said else Markup()


_TITLES: Final = {
    "published": "Published and reproduced",
    "earlier": "Earlier runs and this one",
    "check": "Checks of our own",
}
_COLUMN: Final = {"published": "Published", "earlier": "Earlier", "check": "Stated"}
_CALLED: Final = {"published": "published", "earlier": "in an earlier run", "check": "stated"}
_BOUND: Final = "A bound fits if the whole interval of ours keeps it, and partly if only a part of the interval does."
_CHANCE: Final = (
    "Ours is not told from a number that lies in its interval; where that is wider than stated, it fits partly."
    " Where several are looked at, any of which would be a finding, the intervals hold for all of them together."
)
_NEAR: Final = (
    "Ours is near a number that lies outside its interval, but within the margin that the experiment states beforehand."
)
_STATISTICS: Final = {
    "change": "a change along the curve",
    "ratio": "how many times as large along the curve",
    "gap": "a distance of two curves",
    "slope": "the slope of the curve",
    "argmin": "where the curve is least",
    "settles": "from where on two curves stay together",
    "last": "the end of the curve",
}
"""Statistics in words, except a value."""

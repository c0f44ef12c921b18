"""The tables of the page: published numbers beside ours with the verdict, and the numbers behind a figure.

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
    head = tag(
        "tr",
        tag("th", "What", scope="col"),
        *(tag("th", name, scope="col", class_="number") for name in ("Published", "Reproduced", "Difference")),
        tag("th", "Verdict", scope="col"),
    )
    table = tag("table", tag("thead", head), tag("tbody", *map(_verdict, rows)), class_="verdicts")
    compares = {_statistic(row)[1] for row in rows}
    notes = {
        _STAR: any(row.target != row.published for row in rows),
        _BOUND: bool(compares & {"at most", "at least"}),
        _CHANCE: "not told from" in compares,
    }
    return join(table, *(tag("p", said, class_="small") for said, needed in notes.items() if needed))


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
    return f"published {_published_text(row)}, reproduced {_value(row, row.reproduced)}"


def _verdict(row: VerdictRow) -> Markup:
    # On a phone each cell is a row, with its column's name before it; the inner span keeps it together.
    why = row.why if row.verdict != "fits" else ""
    numbers = tag(
        "tr",
        tag("td", tag("span", row.what, _aim(row))),
        tag("td", _published_text(row), class_="number", data_name="Published"),
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
    margin = f"fits within {format_number(row.within)} of" if row.within else "fits if equal to"
    origin = "it" if row.target == row.published else f"{format_number(row.target, 4)} *"
    if compare:
        given = "known to" if compare == "not told from" else "give or take"
        margin, origin = (f"{given} {format_number(row.within)}" if row.within else ""), ""
    return _note("; ".join(filter(None, [_STATISTICS.get(statistic, ""), f"{margin} {origin}".strip()])))


def _published_text(row: VerdictRow) -> str:
    return f"{_statistic(row)[1]} {_value(row, row.published)}".strip()


def _statistic(row: VerdictRow) -> tuple[str, str]:
    """The statistic, and the comparison if the number is a bound and not a value."""
    statistic, _, compare = row.statistic.partition(", ")
    return statistic, compare


def _difference(row: VerdictRow) -> Markup:
    origin = "" if row.target == row.published else f"from {format_number(row.target, 4)} *"
    return join(format_signed(row.difference, _scale(row)), _note(origin))


def _reproduced_cell(row: VerdictRow) -> Markup:
    return join(_value(row, row.reproduced), _note(format_interval(_scale(row), row.low, row.high)))


def _surprise(row: VerdictRow) -> Markup:
    return _note("" if row.verdict == row.expected else f"expected: {row.expected}")


def _value(row: VerdictRow, value: float) -> str:
    if math.isinf(value):
        return "never"
    return format_number(value, 4) if value == row.published else format_like(value, _scale(row))


def _scale(row: VerdictRow) -> float:
    """The number that sets the rounding of a row."""
    return row.reproduced if math.isfinite(row.reproduced) and row.reproduced else row.published


def _point(point: CurvePoint | None) -> Markup:
    if point is None:
        return tag("span", "\u2013")
    return tag("span", format_number(point.value, 4), _note(format_interval(point.value, point.low, point.high)))


def _note(said: str) -> Markup:
    return tag("span", said, class_="small") if said else Markup()


_STAR: Final = (
    "* What this reading of the paper gives when it is executed elsewhere. Where that is known and differs from what"
    " was published, ours is held against it."
)
_BOUND: Final = "A bound fits if the whole interval of ours keeps it, and partly if only a part of the interval does."
_CHANCE: Final = (
    "Ours is not told from a number that lies in its interval; where that is wider than stated, it fits partly."
    " Where several are looked at, any of which would be a finding, the intervals hold for all of them together."
)
_STATISTICS: Final = {
    "change": "a change along the curve",
    "gap": "a distance of two curves",
    "slope": "the slope of the curve",
    "argmin": "where the curve is least",
    "settles": "from where on two curves stay together",
    "last": "the end of the curve",
}
"""Statistics in words, except a value."""

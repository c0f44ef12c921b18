"""The matrix of defences and attackers on the page: the strongest attacker of each defence, its costs, and all
attackers in shades.

Buttons choose the visible view without a script: the page's style hides the other views. A browser that cannot do that
shows all views, each under its own heading; print shows the chosen one. A shade is never alone: it contains the number,
and shades differ in lightness.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.lab.report.markup import Markup, tag
from veilcast.lab.report.matrix_view import STEP_AXIS, AxisChoice, DefenceRow, MatrixEntry, MatrixSlice, MatrixView
from veilcast.lab.report.number_format import format_interval, format_number


def render_matrix(sheet: MatrixView, name: str, csv: str) -> Markup:
    """The name makes its ids unique in the page, and is valid in a style; `csv` is the address of all the numbers."""
    title = tag("figcaption", sheet.matrix.title)
    if not sheet.views:
        return tag("figure", title, tag("p", "No values yet.", class_="small"))
    under = tag("div", _legend(sheet), tag("span", "All choices: ", tag("a", "CSV", href=csv)), class_="under small")
    controls = tag("div", *(_control(sheet, choice, name) for choice in sheet.choices), class_="choices")
    views = [_view(sheet, view, name) for view in sheet.views]
    return tag("figure", title, controls, *views, under, class_="decision", id=name)


def view_rules(sheet: MatrixView, name: str) -> str:
    """The style that shows only the chosen view."""
    return "".join(
        f"#{name}:has(#{_id(name, choice, value)}:not(:checked)) .{_id(name, choice, value)}-on{{display:none}}"
        for choice in sheet.choices
        for value in choice.values
    )


def _control(sheet: MatrixView, choice: AxisChoice, name: str) -> Markup:
    group = f"{name}-{choice.name}"
    options = []
    for value in choice.values:
        own = _id(name, choice, value)
        button = tag("input", type="radio", name=group, id=own, checked="checked" if value == choice.first else None)
        options.append(tag("label", button, tag("span", _plain(value)), for_=own))
    return tag("fieldset", tag("legend", _axis_label(sheet, choice.name)), *options)


def _view(sheet: MatrixView, view: MatrixSlice, name: str) -> Markup:
    matrix = sheet.matrix
    heading = ", ".join(f"{_axis_label(sheet, axis)} {_plain(view.at[axis])}" for axis in view.at) or matrix.title
    head = tag(
        "tr",
        tag("th", "Defence", scope="col", class_="defence"),
        tag("th", "Strongest", scope="col"),
        *(tag("th", tag("span", _words(name)), scope="col") for name in (*matrix.costs, *matrix.attacks)),
    )
    body = [_row(sheet, row, view.rows[0]) for row in view.rows]
    table = tag("table", tag("caption", heading), tag("thead", head), tag("tbody", *body))
    shown = [f"{_id(name, choice, view.at[choice.name])}-on" for choice in sheet.choices]
    # A wide table scrolls sideways, also by keyboard.
    label = f"{matrix.title}: {heading}"
    return tag("div", table, class_=" ".join(["view", *shown]), tabindex="0", role="region", aria_label=label)


def _row(sheet: MatrixView, row: DefenceRow, first: DefenceRow) -> Markup:
    cells = []
    for cost, entry, beside in zip(sheet.matrix.costs, row.costs, first.costs, strict=True):
        cells.append(_cost(entry, beside, f"{row.defence}, {_words(cost)}"))
    for attack, entry in zip(sheet.matrix.attacks, row.reached, strict=True):
        cells.append(_cell(sheet, entry, f"{row.defence}, {_words(attack)}"))
    return tag("tr", tag("th", row.defence, scope="row", class_="defence"), _strongest(sheet, row), *cells)


def _strongest(sheet: MatrixView, row: DefenceRow) -> Markup:
    found = sheet.strongest(row)
    if found is None:
        return tag("td", _NONE)
    attack, entry = found
    level = sheet.level(entry)
    name = tag("span", _words(attack) if level else "chance")
    return tag("td", tag("b", _number(sheet, entry.value)), name, class_=f"shade h{level} strongest")


def _cell(sheet: MatrixView, entry: MatrixEntry | None, what: str) -> Markup:
    if entry is None:
        return tag("td", _NONE, class_="none", title=f"{what}: no value")
    told = f"{what}: {_number(sheet, entry.value)} {format_interval(entry.value, entry.low, entry.high)}".strip()
    return tag("td", _number(sheet, entry.value), class_=f"shade h{sheet.level(entry)}", title=told)


def _cost(entry: MatrixEntry | None, first: MatrixEntry | None, what: str) -> Markup:
    """A cost, with its ratio to that of the first defence."""
    if entry is None:
        return tag("td", _NONE, class_="cost")
    told = f"{what}: {format_number(entry.value, 4)} {format_interval(entry.value, entry.low, entry.high)}".strip()
    times = f"{entry.value / first.value:.1f} \u00d7" if first is not None and first.value and entry != first else ""
    return tag("td", format_number(entry.value), tag("span", times, class_="small"), class_="cost", title=told)


def _legend(sheet: MatrixView) -> Markup:
    """The shades from chance to certainty, with the upper end of each."""
    samples = [tag("span", format_number(edge), class_=f"shade h{level}") for level, edge in enumerate(sheet.edges())]
    metric = _words(sheet.matrix.metric) + (f" over {_words(sheet.matrix.over)}" if sheet.matrix.over else "")
    return tag("span", f"{metric} up to ", *samples, "; grey also where chance is in the interval.", class_="scale")


def _number(sheet: MatrixView, value: float) -> str:
    """Shares have three decimals, so that a column is aligned."""
    shares = max(abs(sheet.matrix.chance), abs(sheet.matrix.certain)) <= 1
    return f"{value:.3f}".replace("-", "\u2212") if shares else format_number(value)


def _axis_label(sheet: MatrixView, axis: str) -> str:
    return sheet.step if axis == STEP_AXIS else _words(axis)


def _words(name: str) -> str:
    return name.replace("-", " ").replace("_", " ")


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _id(name: str, choice: AxisChoice, value: Any) -> str:
    """The id by place: a value can have letters that are invalid in an id."""
    return f"{name}-{choice.name}-{choice.values.index(value)}"


_NONE: Final = "\u2013"

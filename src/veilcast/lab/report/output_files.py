"""Writes the page and the files beside it: each figure as SVG and as JSON of Vega-Lite, and the numbers of figures and
matrices as CSV."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from veilcast.authority.secret_file import replace_file
from veilcast.errors import StorageError
from veilcast.lab.report import charts
from veilcast.lab.report.figure_data import FigureData
from veilcast.lab.report.matrix_view import MatrixView


def write_page(path: Path, page: str) -> None:
    _make_directory(path.parent)
    replace_file(path, page.encode(), mode=_MODE)


def write_figure(directory: Path, name: str, plot: FigureData) -> None:
    """`name` must be valid as a file name."""
    _make_directory(directory)
    replace_file(directory / f"{name}.svg", charts.draw_standalone(plot).encode(), mode=_MODE)
    replace_file(directory / f"{name}.json", charts.write_specification(plot).encode(), mode=_MODE)
    replace_file(directory / f"{name}.csv", _csv(plot).encode(), mode=_MODE)


def write_matrix(directory: Path, name: str, sheet: MatrixView) -> None:
    """`name` must be valid as a file name."""
    _make_directory(directory)
    replace_file(directory / f"{name}.csv", _rows(sheet).encode(), mode=_MODE)


def _rows(sheet: MatrixView) -> str:
    """A row for every cell of every view; a cost has no attack."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    matrix = sheet.matrix
    metric = f"{matrix.metric}/{matrix.over}" if matrix.over else matrix.metric
    columns = [*((attack, metric) for attack in matrix.attacks), *(("", cost) for cost in matrix.costs)]
    table.writerow([*(sheet.views[0].at if sheet.views else ()), "defence", "attack", "metric", "value", "low", "high"])
    for view in sheet.views:
        for row in view.rows:
            for column, entry in zip(columns, (*row.reached, *row.costs), strict=True):
                if entry is not None:
                    table.writerow([*view.at.values(), row.defence, *column, entry.value, entry.low, entry.high])
    return text.getvalue()


def _csv(plot: FigureData) -> str:
    """A row for every point, and for every published or earlier value; a place on the x axis has no y."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["kind", "curve", "x", "y", "low", "high", "what"])
    for line in plot.lines:
        for point in line.points:
            table.writerow(["reproduced", line.label, *point, ""])
    for mark in plot.marks:
        y = "" if mark.y is None else mark.y
        table.writerow([mark.kind, plot.lines[mark.line].label, mark.x, y, "", "", mark.what])
    return text.getvalue()


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {path}: {os.strerror(error.errno) if error.errno else error}") from error


_MODE = 0o644

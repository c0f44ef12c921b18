"""What stands beside the page as files of its own: each figure as SVG, and its numbers and a matrix's as CSV."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from veilcast.authority.vault import write_whole
from veilcast.errors import StorageError
from veilcast.lab.report import figure
from veilcast.lab.report.plot import Plot
from veilcast.lab.report.sheet import Sheet


def write_page(path: Path, page: str) -> None:
    _make_directory(path.parent)
    write_whole(path, page.encode(), mode=_MODE)


def write_figure(directory: Path, name: str, plot: Plot) -> None:
    """`name` is fit for a file name."""
    _make_directory(directory)
    write_whole(directory / f"{name}.svg", figure.standalone(plot, name).encode(), mode=_MODE)
    write_whole(directory / f"{name}.csv", _csv(plot).encode(), mode=_MODE)


def write_sheet(directory: Path, name: str, sheet: Sheet) -> None:
    """`name` is fit for a file name."""
    _make_directory(directory)
    write_whole(directory / f"{name}.csv", _rows(sheet).encode(), mode=_MODE)


def _rows(sheet: Sheet) -> str:
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


def _csv(plot: Plot) -> str:
    """A row for every point, and for what was published; a published place on the x axis has no y."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["kind", "curve", "x", "y", "low", "high", "what"])
    for line in plot.lines:
        for point in line.points:
            table.writerow(["reproduced", line.label, *point, ""])
    for mark in plot.marks:
        y = "" if mark.y is None else mark.y
        table.writerow(["published", plot.lines[mark.line].label, mark.x, y, "", "", mark.what])
    return text.getvalue()


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make {path}: {os.strerror(error.errno) if error.errno else error}") from error


_MODE = 0o644

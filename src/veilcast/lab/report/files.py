"""The figures as files of their own, beside the page: each as SVG, and its numbers as CSV."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from veilcast.authority.vault import write_whole
from veilcast.errors import StorageError
from veilcast.lab.report import figure
from veilcast.lab.report.plot import Plot


def write_page(path: Path, page: str) -> None:
    _make_directory(path.parent)
    write_whole(path, page.encode(), mode=_MODE)


def write_figure(directory: Path, name: str, plot: Plot) -> None:
    """`name` is fit for a file name."""
    _make_directory(directory)
    write_whole(directory / f"{name}.svg", figure.standalone(plot, name).encode(), mode=_MODE)
    write_whole(directory / f"{name}.csv", _csv(plot).encode(), mode=_MODE)


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

"""The output of `veilcast lab list`: one line for each experiment, or the details of some."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any, TypeAlias

from veilcast.lab.experiment import definition as experiment

Row: TypeAlias = dict[str, Any]


def list_rows(names: list[str]) -> list[Row]:
    """Return one row for each experiment with its defaults: the first engine, and all seeds."""
    found = []
    for name, definition in map(experiment.load_outline, names):
        engine = definition.engines[0]
        cells = list(definition.make_cells(engine=engine))
        seeds = definition.default_seeds(engine, quick=False)
        found.append(
            {
                "name": name,
                "title": definition.title,
                "claim": definition.claim,
                "source": definition.source,
                "engines": definition.engines,
                "data": any(cell.params.data_sources(engine) for cell in cells),
                "cells": len(cells),
                "seeds": seeds,
                "runs": len(cells) * seeds,
                "minutes": definition.minutes,
            }
        )
    return found


def format_table(found: list[Row]) -> list[str]:
    name = max(len(row["name"]) for row in found)
    lines = [f"{'name':{name}} {'min':>4}  title"]
    for row in found:
        lines += _hung(f"{row['name']:{name}} {row['minutes']:>4g}  ", row["title"] + ("*" if row["data"] else ""))
    return [
        *lines,
        "",
        "min: about how many minutes on two cores; *: needs --data",
        "`veilcast lab list NAME` tells more",
    ]


def format_sheets(found: list[Row]) -> list[str]:
    return [line for row in found for line in (*_sheet(row), "")][:-1]


def _sheet(row: Row) -> list[str]:
    size = f"{row['cells']:,} cells with {row['seeds']:,} seeds each, about {row['minutes']:g} minutes on two cores"
    details = {
        "claim": row["claim"],
        "source": row["source"],
        "runs": size,
        "engines": ", ".join(row["engines"]),
        "needs": "a folder of real data, --data" if row["data"] else "",
    }
    lines = _hung(f"{row['name']}: ", row["title"])
    for name, text in details.items():
        lines += _hung(f"  {name:8} ", text) if text else []
    return lines


def _hung(head: str, text: str) -> list[str]:
    width = shutil.get_terminal_size().columns
    return textwrap.wrap(
        text,
        max(width - 1, len(head) + 20),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )

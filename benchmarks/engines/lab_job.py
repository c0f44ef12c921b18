"""The lab's own job on files of whole runs, as a task of Spark and a single process do it.

A task imports this module: it has nothing of what makes tables, or of the peers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from veilcast.lab import tables
from veilcast.lab.attack.insider import coalition_job
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.table_engine import scan_files
from veilcast.observe import TABLES

ATTACKS: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications": ("leaf", "intersection"),
    "cadence": ("cadence",),
    "first-spy": ("first-spy",),
}
"""Names of attackers, by what they look at."""
TABLES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications": ("cells",),
    "cadence": ("cells",),
    "first-spy": ("insiders", "topology", "presence"),
}


class TiledFiles(msgspec.Struct, frozen=True):
    """A file of each table that has any, with the same runs."""

    paths: dict[str, str]


def guess_from_files(files: TiledFiles, attack: str) -> list[pa.Table]:
    given = {
        name: scan_files([path], tables.arrow_schema(TABLES[name]).names)
        for name, path in files.paths.items()
        if name in TABLES_OF[attack]
    }
    return [guess(given, attack)] if set(given) == set(TABLES_OF[attack]) else []


def guess(given: Mapping[str, Any], attack: str) -> Any:
    """Rows of `guesses` from tables of either engine."""
    if attack == "first-spy":
        return coalition_job.guess_from_coalition(given, ATTACKS[attack], [sys.maxsize])
    # Without a table of facts the lab assumes the heartbeat that the tiles have.
    return capture_job.guess_from_captures({"cells": given["cells"]}, ATTACKS[attack])

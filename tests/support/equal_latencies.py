"""A planet of machines all of which are 100 ms apart, in place of PlanetLab's."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from veilcast.lab import data
from veilcast.lab.data import TimesFile

HOP_S = 0.05


def write_equal_latencies(folder: Path, machines: int, patch: pytest.MonkeyPatch) -> Path:
    """Write the file of latencies into a data folder; returns the folder."""
    patch.setattr(data, "PLANETLAB", TimesFile("times.txt.gz", "somewhere", machines))
    rows = [" ".join("0" if u == v else "100" for v in range(machines)) for u in range(machines)]
    (folder / "times.txt.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return folder

"""The input of an audit: cells reduced to links, gaps, notifications and guesses.

A capture may hold several networks (`networks`). Each network's record is attacked as a whole and in parts of equal
length, each by itself. This shows the suspects, and whether attackers would suspect them again. Small captures are
read into memory, larger ones by Spark (`reader`); both give the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.audit.networks import LeftOut
from veilcast.lab.capture import ReadingReport


@dataclass(frozen=True, eq=False)
class AttackerGuesses:
    """Scores of one attacker: for the whole record, and one row for each part."""

    attack: str
    role: str
    whole: NDArray[np.float64]
    parts: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ObservedNetwork:
    """Observations of one network."""

    reading: ReadingReport
    """Report on the reading of the captures."""
    heartbeat_us: int
    carried: pa.Table
    """Columns src, dst, size, cells, first, last: cells of each size on each link, with the first and the last time."""
    gaps: pa.Table
    """Columns src, dst, bin, cells: number of gaps of each length on each link, in bins of `BIN`."""
    publications: int
    """Number of waves of cells that look like copies of publications."""
    flows: pa.Table
    """Columns src, dst, notes: number of such cells on each link that carried any, sorted."""
    nodes: list[str]
    guesses: list[AttackerGuesses]


class ObservedCapture(NamedTuple):
    """All observations of an audit: each network by itself, and the traffic that is in none."""

    networks: list[ObservedNetwork]
    left_out: LeftOut
    seen: frozenset[str]
    """Every node in the captures."""


def require_one(runs: int) -> None:
    if runs > 1:
        raise ConfigError("these are several runs, and an audit is of one network")


PARTS: Final = 8
"""Number of parts that a record is cut into."""
BIN: Final = 8
"""Number of bins over which the length of a gap, in milliseconds, doubles."""
SMALL_BYTES: Final = 512 << 20
"""Total size of captures that still fit into memory as cells: about a gigabyte there."""

"""What an audit goes by: cells brought down to links, gaps, notes and guesses, by whatever could hold them.

A capture may hold several networks (`networks`). The record of each is looked at as a whole, and in parts of equal
length, each by itself: so it is seen whom attackers suspect, and whether they would again (`suspicion`).
Captures of some size are read into memory (`small`), larger ones by Spark (`large`); what comes of both is the same.
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
    """The scores of one attacker: of the whole record, and of its parts, a row each."""

    attack: str
    role: str
    whole: NDArray[np.float64]
    parts: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ObservedNetwork:
    """One network."""

    reading: ReadingReport
    """What was read, left out and corrected."""
    heartbeat_us: int
    carried: pa.Table
    """Columns src, dst, size, cells, first, last: what each link carried of each size, and from when to when."""
    gaps: pa.Table
    """Columns src, dst, bin, cells: how many gaps of each length it had, in bins of `BIN`."""
    notes: pa.Table
    """Columns t_us, src, dst: the cells that look like copies of publications."""
    nodes: list[str]
    guesses: list[AttackerGuesses]


class ObservedCapture(NamedTuple):
    """All that was given to an audit: each network by itself, and what belongs to none."""

    networks: list[ObservedNetwork]
    left_out: LeftOut
    seen: frozenset[str]
    """Every node in the captures."""


def require_one(runs: int) -> None:
    if runs > 1:
        raise ConfigError("these are several runs, and an audit is of one network")


PARTS: Final = 8
"""Into so many a record is cut."""
BIN: Final = 8
"""Of gaps so many bins double their length, in milliseconds."""
HEARTBEAT_US: Final = 1_000_000
"""Where nothing comes again from which it could be told."""
SMALL_BYTES: Final = 512 << 20
"""Captures of this size together still fit into memory as cells: a gigabyte, about."""

"""Whose each tap is, how its clock goes, and which of its rows stay.

A simulation records every wire once. A node's tap records what this node sends and receives: its own address is in
every row, and that is how the two are told apart. Where both ends of a link have a tap, what the sender recorded is
what was on the wire; the receiver's rows of it are left out for the time in which the sender's tap was running, so that
each datagram is one cell, and one that was lost on the way is one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast import observe
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.capture import clocks, tap_lines
from veilcast.lab.capture.clocks import Times
from veilcast.lab.capture.merge import WINDOW_US
from veilcast.lab.capture.notes import Clock
from veilcast.lab.capture.tap_lines import Part
from veilcast.wire.geometry import CELL


class TapFindings(msgspec.Struct):
    """Of one part, or of a whole file; small, and fit to be sent."""

    file: int
    rows: int = 0
    ours: int = 0
    own: list[str] | None = None
    """Addresses that are in all rows: one for a tap, two if it has one neighbour; None before any row is seen."""
    first_us: int = 1 << 62
    last_us: int = 0
    times: dict[str, dict[str, list[int]]] = {}
    """When the first cells were seen, by source and destination."""


class Tap(msgspec.Struct, frozen=True):
    """One tap among others."""

    own: str
    ahead_us: int
    tapped: dict[str, tuple[int, int]] = {}
    """When the taps of other nodes were running, by their address, in their corrected time."""


def examine(part: Part, trusted: frozenset[str] = frozenset()) -> TapFindings:
    """If any nodes are `trusted`, only times of links between those are kept: strangers cannot crowd them out."""
    found = TapFindings(part.file)
    for _, _, t_us, source, destination, size in tap_lines.rows(part, observe.Cell):
        found.rows += 1
        found.ours += size == CELL
        found.first_us, found.last_us = min(found.first_us, t_us), max(found.last_us, t_us)
        if found.own is None:
            found.own = [source, destination]
        if found.own:
            if not (source in found.own and destination in found.own):
                found.own = [end for end in found.own if end in (source, destination)]
            if not trusted or (source in trusted and destination in trusted):
                remember(found.times, source, destination, [t_us])
    return _without_needless(found)


def together(parts: Sequence[TapFindings], files: int) -> list[TapFindings]:
    """What was found in all parts, which are in their order, by file."""
    found = [TapFindings(file) for file in range(files)]
    for part in parts:
        whole = found[part.file]
        whole.rows += part.rows
        whole.ours += part.ours
        if part.own is not None:
            whole.own = [end for end in part.own if whole.own is None or end in whole.own]
        whole.first_us, whole.last_us = min(whole.first_us, part.first_us), max(whole.last_us, part.last_us)
        for source, several in part.times.items():
            for destination, times in several.items():
                remember(whole.times, source, destination, times)
    return [_without_needless(one) for one in found]


def arrange(paths: Sequence[str], found: Sequence[TapFindings]) -> tuple[list[Tap] | None, list[Clock]]:
    """Whose each tap is, and how its clock goes; None if these are records of whole networks."""
    whole = [not one.own for one in found]
    if all(whole):
        return None, []
    if any(whole):
        at = whole.index(True)
        raise ConfigError(f"{paths[at]} is no single node's tap, as others are; give taps, or records of networks")
    owners = _owners([one.own or [] for one in found])
    ahead, told = clocks.settle(
        paths,
        lambda a, b: sum(min(map(len, way)) for way in _ways(found, owners, a, b)),
        lambda a, b: clocks.by_rhythm(*_ways(found, owners, a, b)),
    )
    running: dict[str, tuple[int, int]] = {}
    for one, own, ahead_us in zip(found, owners, ahead, strict=True):
        first, last = running.get(own, (one.first_us - ahead_us, one.last_us - ahead_us))
        running[own] = min(first, one.first_us - ahead_us), max(last, one.last_us - ahead_us)
    taps = []
    for own, ahead_us in zip(owners, ahead, strict=True):
        taps.append(Tap(own, ahead_us, {other: times for other, times in running.items() if other != own}))
    return taps, told


def cells(part: Part, tap: Tap | None, run: str, epoch_us: int) -> pa.Table:
    """The cells of a part; those of a simulation as they are, for they may be of several runs."""
    found = tap_lines.to_table(tap_lines.rows(part, observe.Cell), observe.Cell)
    if tap is None:
        return found
    t_us = found["t_us"].to_numpy() - tap.ahead_us
    kept = np.flatnonzero(~_seen_elsewhere(found, t_us, tap))
    t_us = t_us[kept]
    found = found.take(pa.array(kept))
    columns = [pa.repeat(pa.scalar(run), len(kept)), pa.array(t_us // epoch_us), pa.array(t_us)]
    return pa.table([*columns, *(found[name] for name in ("src", "dst", "size"))], tables.arrow_schema(observe.Cell))


def _seen_elsewhere(found: pa.Table, t_us: NDArray[np.int64], tap: Tap) -> NDArray[np.bool_]:
    """Which rows the sender's tap has, too; what it sent last may have been on its way when it ended."""
    sources = found["src"].combine_chunks().dictionary_encode()
    running = [tap.tapped.get(source, _NEVER) for source in sources.dictionary.to_pylist()]
    if not running:
        return np.zeros(len(t_us), np.bool_)
    since, until = (np.array(edge, np.int64)[sources.indices.to_numpy()] for edge in zip(*running, strict=True))
    elsewhere: NDArray[np.bool_] = (since <= t_us) & (t_us <= until + WINDOW_US)
    return elsewhere


def _without_needless(found: TapFindings) -> TapFindings:
    """No clock is set by the links of a whole network."""
    if not found.own:
        found.times = {}
    return found


def remember(times: dict[str, dict[str, list[int]]], source: str, destination: str, more: list[int]) -> None:
    several = times.get(source)
    if several is None:
        if len(times) >= ENDS_MAX:
            return
        several = times[source] = {}
    if destination not in several and len(several) >= ENDS_MAX:
        return
    known = several.setdefault(destination, [])
    known += more[: clocks.TIMES_MAX - len(known)]


def _owners(candidates: Sequence[list[str]]) -> list[str]:
    """Who has one neighbour could be either end of that link: then it is one that no other tap is of."""
    taken = {own[0] for own in candidates if len(own) == 1}
    owners = []
    for own in candidates:
        owners.append(next((end for end in own if len(own) == 1 or end not in taken), own[0]))
        taken.add(owners[-1])
    return owners


def _ways(found: Sequence[TapFindings], owners: Sequence[str], a: int, b: int) -> tuple[Times, Times]:
    """When either tap saw what went from the first to the second, and what went back."""
    return _times(found[a], found[b], owners[a], owners[b]), _times(found[a], found[b], owners[b], owners[a])


def _times(first: TapFindings, second: TapFindings, source: str, destination: str) -> Times:
    seen = [np.array(each.times.get(source, {}).get(destination, []), np.int64) for each in (first, second)]
    return seen[0], seen[1]


ENDS_MAX: Final = 1024
_NEVER: Final = (1, 0)

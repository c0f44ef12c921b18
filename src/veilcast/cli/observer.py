"""A global observer, and the attack of P0 on what it saw: rows of the table `cells` in, guesses out. No keys, no truth.

**The leaf rule** (P0 2.3, 5). Notes travel outside heartbeats, so they stand out. A size that is seen on nearly every
link is that of bare heartbeats or acknowledgements, and one that mostly leaves when its sender beats is that of a
heartbeat with something in it; a node beats in a rhythm that is easily found. Of what is left, the most frequent size
is that of the notes, for careful publishers make theirs equally long. Notes between two silences are one publication:
who sends first is its publisher, and who receives and passes nothing on, a leaf, is a reader: why else would it be
there. Who is a leaf in most publications is named.

**Volumes** assume less of the wire and grant more to the observer: it knows when each note was published, as a reader
of the topic does. Who then receives more than usual is in the mesh, and may be a reader.

On constant cells the first finds no note, and the second sees the noise of the clocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from veilcast.observe import Cell


@dataclass(frozen=True)
class Sight:
    """What the leaf rule makes of a record."""

    links: Counter[tuple[str, str]]
    """Datagrams by link, of any kind."""
    notes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Those that stood out, by link: the mesh as it is seen."""
    publications: int = 0
    publisher: str | None = None
    readers: tuple[str, ...] = ()
    """Who is named."""
    scores: dict[str, float] = field(default_factory=dict)
    """For those that were seen with notes: 1 for a leaf, and half for one that passes on, on the average."""


def look(cells: Sequence[Cell], heartbeat_us: int) -> Sight:
    """The leaf rule over a record of all wires, in order of time. The length of a heartbeat is no secret."""
    links = Counter((cell.src, cell.dst) for cell in cells)
    waves = _waves(_outside_heartbeats(cells, links, heartbeat_us))
    origins: Counter[str] = Counter()
    was_leaf: Counter[str] = Counter()
    was_there: Counter[str] = Counter()
    for wave in waves:
        senders = {cell.src for cell in wave}
        reached = {cell.dst for cell in wave}
        origins[wave[0].src] += 1
        was_there.update(senders | reached)
        was_leaf.update(reached - senders)
    return Sight(
        links=links,
        notes=Counter((cell.src, cell.dst) for wave in waves for cell in wave),
        publications=len(waves),
        publisher=max(sorted(origins), key=origins.__getitem__, default=None),
        readers=tuple(node for node in sorted(was_there) if 2 * was_leaf[node] > len(waves)),
        scores={node: (was_there[node] + was_leaf[node]) / (2 * len(waves)) for node in sorted(was_there)},
    )


def volumes(cells: Sequence[Cell], published_us: Sequence[int], nodes: Sequence[str]) -> dict[str, float]:
    """By node, how many bytes it received in the moments after publications, beyond its usual."""
    if not cells or not published_us:
        return dict.fromkeys(nodes, 0.0)
    place = {node: number for number, node in enumerate(nodes)}
    known = [cell for cell in cells if cell.dst in place]
    times = np.array([cell.t_us for cell in known], dtype=np.int64)
    sizes = np.array([cell.size for cell in known], dtype=np.float64)
    targets = np.array([place[cell.dst] for cell in known], dtype=np.intp)
    moments = np.sort(np.array(published_us, dtype=np.int64))
    latest = np.searchsorted(moments, times, side="right") - 1
    after = (latest >= 0) & (times - moments[latest] < MOMENT_US)
    # What falls into the moments, less what would if all were spread evenly over the record.
    share = min(1.0, len(moments) * MOMENT_US / max(1, cells[-1].t_us - cells[0].t_us))
    excess = np.bincount(targets, sizes * (after - share), len(nodes))
    return {node: float(excess[number]) for node, number in place.items()}


def auc(scores: Mapping[str, float], positive: Sequence[str]) -> float:
    """The probability that a positive one has the higher score than another; ties count half."""
    high = np.array([score for node, score in scores.items() if node in positive])
    low = np.array([score for node, score in scores.items() if node not in positive])
    if not len(high) or not len(low):
        return 0.5
    differences = np.sign(high[:, None] - low[None, :])
    return float((differences.mean() + 1) / 2)


def auc_by_chance(positives: int, others: int) -> tuple[float, float]:
    """Where 95 of 100 values lie if scores tell nothing (the normal limit of the rank sum)."""
    spread = 1.96 * ((positives + others + 1) / (12 * positives * others)) ** 0.5
    return max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)


def _outside_heartbeats(cells: Sequence[Cell], links: Counter[tuple[str, str]], heartbeat_us: int) -> list[Cell]:
    carried: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for cell in cells:
        carried[cell.size].add((cell.src, cell.dst))
    usual = {size for size, on in carried.items() if len(on) >= USUAL * len(links)}
    phases = _phases([cell for cell in cells if cell.size in usual], heartbeat_us)
    beside: Counter[int] = Counter()
    for cell in cells:
        if cell.size not in usual:
            late_us = (cell.t_us - phases.get(cell.src, 0) + EARLY_US) % heartbeat_us
            beside[cell.size] += -1 if cell.src in phases and late_us < EARLY_US + LATE_US else 1
    size, surplus = max(beside.items(), key=lambda entry: entry[1], default=(0, 0))
    return [cell for cell in cells if cell.size == size] if surplus > 0 else []


def _phases(cells: Sequence[Cell], heartbeat_us: int) -> dict[str, int]:
    """When each sender beats: the millisecond of a heartbeat in which it sends most of what is usual."""
    moments: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for cell in cells:
        moments[cell.src][cell.t_us % heartbeat_us // BIN_US] += 1
    return {node: BIN_US * max(counts, key=counts.__getitem__) for node, counts in moments.items()}


def _waves(notes: Sequence[Cell]) -> list[list[Cell]]:
    waves: list[list[Cell]] = []
    for note in notes:
        if not waves or note.t_us - waves[-1][-1].t_us > SILENCE_US:
            waves.append([])
        waves[-1].append(note)
    return waves


USUAL: Final = 0.9
"""The share of links on which a size is seen that everybody sends all the time."""
BIN_US: Final = 1_000
EARLY_US: Final = 2_000
LATE_US: Final = 10_000
"""What leaves so long before a beat was due, or after it, left with it: timers of a busy machine come late."""
SILENCE_US: Final = 150_000
MOMENT_US: Final = 300_000
"""The moment after a publication: a few hops, in any profile."""

"""A quick look at a capture: what two simple attackers find at once, with names, for the demo.

The paper's attacker uses the waves (`publication_waves`) and the leaf rule: the node that sends first is the publisher,
and a node that forwards nothing in most publications is a subscriber. The other attacker assumes less of the wire and
is granted more: it knows the times of publications, as a subscriber does, and finds the nodes that receive more than
usual just then (`disclosure`). On constant cells the first attacker finds no notification, and the second sees the
noise of clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab.attack.observer import disclosure, leaf_rule, mesh_source
from veilcast.lab.attack.observer.captured_cells import CapturedCells


@dataclass(frozen=True)
class QuickLook:
    links: frozenset[tuple[str, str]]
    """Pairs of nodes that exchanged cells, each once."""
    notes: Counter[tuple[str, str]]
    """Number of notifications that stood out, by link: the mesh as the observer sees it."""
    publications: int
    publisher: str | None
    readers: tuple[str, ...]
    """Nodes named as subscribers."""
    scores: dict[str, float]
    """Its mean score, by node: 1 for a leaf, 0.5 for a forwarder."""
    volumes: dict[str, float]
    """How much more than usual it receives after publications, by node."""


def take_quick_look(table: pa.Table, heartbeat_us: int, published_us: Sequence[int]) -> QuickLook:
    """Look at a table of cells of one run."""
    cells = CapturedCells.from_table(table)
    seen = cells.observations(
        heartbeat_us, cells.notification_size(heartbeat_us), published=np.array(published_us, np.int64)
    )
    names, count = cells.names, len(seen.flows)
    named, scores = np.zeros(len(names)), np.zeros(len(names))
    for src, dst, _ in seen.flows:
        named += leaf_rule.find_leaves(src, dst, len(names))
        scores += leaf_rule.score_leaf_rule(src, dst, len(names))
    source = mesh_source.score_flow_source(seen.publication, seen.src, seen.dst, seen.at, len(names))
    moments = replace(seen, rounds=cells.rounds(MOMENT_US))
    return QuickLook(
        links=frozenset((names[u], names[v]) for u, v in zip(*cells.links(), strict=True)),
        notes=Counter((names[u], names[v]) for u, v in zip(seen.src, seen.dst, strict=True)),
        publications=count,
        publisher=names[source.argmax()] if count else None,
        readers=tuple(name for name, often in zip(names, named, strict=True) if 2 * often > count),
        scores=_by_name(names, scores / max(1, count)),
        volumes=_by_name(names, disclosure.score_disclosure(moments.busy[:, 0], moments.rounds.activity)),
    )


def _by_name(names: Sequence[str], values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


MOMENT_US: Final = 300_000
"""Length of a round: the time of a few hops in any profile."""

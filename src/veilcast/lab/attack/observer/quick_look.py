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
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.observer import capture_job, disclosure, leaf_rule, mesh_source
from veilcast.lab.attack.registry import ACTIVITY, WAVES
from veilcast.observe import FactRow, PublishedRow


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
    if not len(table):
        return QuickLook(frozenset(), Counter(), 0, None, (), {}, {})
    run = table["run"][0].as_py()
    facts = [FactRow(run, "heartbeat_us", float(heartbeat_us)), FactRow(run, "window_us", float(MOMENT_US))]
    observed = {"cells": table, "facts": tables.from_rows(FactRow, facts)}
    known = {"published": tables.from_rows(PublishedRow, [PublishedRow(run, "", t_us) for t_us in published_us])}
    _, names, _, seen = capture_job.observe_tables(observed, {WAVES})
    moments = capture_job.observe_tables(observed | known, {ACTIVITY}).seen
    count = len(seen.flows)
    named, scores = np.zeros(len(names)), np.zeros(len(names))
    for src, dst, _ in seen.flows:
        named += leaf_rule.find_leaves(src, dst, len(names))
        scores += leaf_rule.score_leaf_rule(src, dst, len(names))
    source = mesh_source.score_flow_source(seen.publication, seen.src, seen.dst, seen.at, len(names))
    return QuickLook(
        links=frozenset((names[u], names[v]) for u, v in zip(*seen.graph.edges(), strict=True)),
        notes=Counter((names[u], names[v]) for u, v in zip(seen.src, seen.dst, strict=True)),
        publications=count,
        publisher=names[source.argmax()] if count else None,
        readers=tuple(name for name, often in zip(names, named, strict=True) if 2 * often > count),
        scores=_by_name(names, scores / max(1, count)),
        volumes=_by_name(names, disclosure.score_disclosure(moments.busy[:, 0], moments.activity)),
    )


def _by_name(names: Sequence[str], values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


MOMENT_US: Final = 300_000
"""Length of a round: the time of a few hops in any profile."""

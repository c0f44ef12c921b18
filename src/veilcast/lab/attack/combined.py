"""The combined adversary of P0 2.3: it sees all wires, and controls insiders.

1. From the wires it has, for each node, how much likelier the observed meshes are if the node subscribes (`closure`).
2. From its insiders it has the odds that the node subscribes (`group-testing`). These contain the prior.
3. Both are logarithms, and what insiders see on their own links is a small part of the meshes. So they are added, as if
   they were independent.

Where the wires show all present nodes in every mesh, as constant traffic does, they say nothing about single nodes, and
only the insiders count. `persistence` tells it: no node was left out of most meshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import make_guesses
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.tables import GuessRow

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CombinedObservations:
    """The evidence about one topic, by node."""

    wires: Scores
    """Logarithms of likelihood ratios."""
    insiders: Scores
    """Logarithms of odds."""
    seen: Scores
    """The share of the meshes in which the wires show the node, by the rule of succession."""


def score_all_evidence(seen: CombinedObservations) -> Scores:
    return seen.insiders if seen.seen.min(initial=1.0) >= _MOSTLY else seen.insiders + seen.wires


def combine_guesses(guesses: AnyTable) -> AnyTable:
    """The guesses of this adversary, from those of `EVIDENCE` about the same runs and epochs."""
    return engine_of(guesses).apply_by(guesses, ["run", "epochs"], _combine_step, GuessRow)


def _combine_step(rows: pa.Table) -> pa.Table:
    inside = rows.filter(pc.equal(rows["attack"], _INSIDERS)).sort_by("node")
    if not len(inside):
        return tables.arrow_schema(GuessRow).empty_table()
    nodes = inside["node"].combine_chunks()

    def scores_by(attack: str) -> Scores:
        own = rows.filter(pc.equal(rows["attack"], attack))
        place = pc.index_in(nodes, own["node"].combine_chunks())
        found = own["score"].to_numpy()[pc.fill_null(place, 0).to_numpy()]
        return np.where(place.is_valid(), found, 0.0)

    seen = CombinedObservations(scores_by(_WIRES), inside["score"].to_numpy(), scores_by(_SEEN))
    run, epochs, coalition, topic = (inside[name][0].as_py() for name in ("run", "epochs", "coalition", "topic"))
    return make_guesses(
        run, NAME, epochs, coalition, topic, inside["role"][0].as_py(), nodes.to_pylist(), score_all_evidence(seen)
    )


NAME: Final = "combined"
_WIRES: Final = "closure"
_INSIDERS: Final = "group-testing"
_SEEN: Final = "persistence"
_MOSTLY: Final = 0.5
EVIDENCE: Final = (_WIRES, _INSIDERS, _SEEN)
"""Attacks whose guesses are combined."""

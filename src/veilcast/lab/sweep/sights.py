"""From what an observer saw to what it reached: the same attackers and measures, whatever engine ran.

An engine shows moments: `Sight`s, each with the flow of every publication since the last, and what the network did by
then. Attackers get flows alone; what they name is then held against the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import leaf, majority
from veilcast.lab.attack.persistence import Persistence
from veilcast.lab.measure.accuracy import Truth, of_guess, of_mesh
from veilcast.lab.measure.ranking import of_scores
from veilcast.lab.sweep.params import Measure


class Flow(NamedTuple):
    """The links over which one publication went, in its direction."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]


@dataclass(frozen=True)
class Sight:
    step: float
    flows: tuple[Flow, ...]
    """One at least; the last is the newest."""
    facts: Mapping[str, float] = field(default_factory=dict)


def measures(truth: Truth, sights: Iterable[Sight], *, persistent: bool) -> list[Measure]:
    """Everything about each sight; the persistent observers too, if publications are compared."""
    found: list[Measure] = []
    nodes = len(truth.subscribes)
    subscribers = int(np.count_nonzero(truth.subscribes))
    persistence, messages = Persistence(nodes), 0
    for sight in sights:
        for flow in sight.flows:
            messages += len(flow.dst)
            if persistent:
                persistence.see(*flow)
        src, dst = sight.flows[-1]
        members = leaf.members(src, dst, nodes)
        # A mesh without any link still has its publisher.
        members[truth.publisher] = True
        network = of_mesh(truth, members) | {"messages": float(len(dst)), "messages_total": float(messages)}
        reached = {
            "": network | dict(sight.facts),
            "leaf": of_guess(truth, members, leaf.leaves(src, dst, nodes))
            | of_scores(truth, leaf.scores(src, dst, nodes)),
            "majority": of_guess(truth, members, majority.named(src, dst, nodes, subscribers)),
        }
        if persistent:
            reached["persistent-links"] = of_guess(truth, members, persistence.by_links())
            reached["persistent-leaf"] = of_guess(truth, members, persistence.by_nodes())
        found += [
            Measure(attack, metric, sight.step, value)
            for attack, metrics in reached.items()
            for metric, value in metrics.items()
        ]
    return found

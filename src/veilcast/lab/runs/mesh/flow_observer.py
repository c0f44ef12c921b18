"""From what an observer saw to what it reached: the same attackers and measures, whatever engine ran.

An engine shows moments: `FlowObservation`s, each with the flow of every publication since the last, and what the
network did by
then. Attackers get flows alone; what they name is then held against the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.observer import leaf_rule
from veilcast.lab.attack.observer.leaf_rule import PersistentObserver
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.accuracy import RunTruth, measure_guess, measure_mesh
from veilcast.lab.measure.ranking import measure_candidates


class PublicationFlow(NamedTuple):
    """The links over which one publication went, in its direction."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]


@dataclass(frozen=True)
class FlowObservation:
    step: float
    flows: tuple[PublicationFlow, ...]
    """One at least; the last is the newest."""
    facts: Mapping[str, float] = field(default_factory=dict)


def measure_flows(truth: RunTruth, sights: Iterable[FlowObservation], *, persistent: bool) -> list[Measure]:
    """Everything about each sight; the persistent observers too, if publications are compared."""
    found: list[Measure] = []
    nodes = len(truth.subscribes)
    subscribers = int(np.count_nonzero(truth.subscribes))
    persistence, messages = PersistentObserver(nodes), 0
    for sight in sights:
        for flow in sight.flows:
            messages += len(flow.dst)
            if persistent:
                persistence.observe(*flow)
        src, dst = sight.flows[-1]
        members = leaf_rule.find_members(src, dst, nodes)
        # A mesh without any link still has its publisher.
        members[truth.publisher] = True
        network = measure_mesh(truth, members) | {"messages": float(len(dst)), "messages_total": float(messages)}
        reached = {
            "": network | dict(sight.facts),
            "leaf": measure_guess(truth, members, leaf_rule.find_leaves(src, dst, nodes))
            | measure_candidates(truth, leaf_rule.score_leaf_rule(src, dst, nodes)),
            "majority": measure_guess(truth, members, leaf_rule.name_majority(src, dst, nodes, subscribers)),
        }
        if persistent:
            reached["persistent-links"] = measure_guess(truth, members, persistence.name_by_links())
            reached["persistent-leaf"] = measure_guess(truth, members, persistence.name_by_nodes())
        found += [
            Measure(attack, metric, sight.step, value)
            for attack, metrics in reached.items()
            for metric, value in metrics.items()
        ]
    return found

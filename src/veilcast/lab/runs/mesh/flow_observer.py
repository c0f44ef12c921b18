"""From observed flows to measures: the same attackers and measures for every engine.

An engine yields `FlowObservation`s. Each has the flow of every publication since the last observation, and facts about
the network. Attackers receive flows alone. Their guesses are then compared with the truth.
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
    """The links that one publication took, in its direction."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]


@dataclass(frozen=True)
class FlowObservation:
    step: float
    flows: tuple[PublicationFlow, ...]
    """At least one; the last is the newest."""
    facts: Mapping[str, float] = field(default_factory=dict)


def measure_flows(truth: RunTruth, observations: Iterable[FlowObservation], *, persistent: bool) -> list[Measure]:
    """The measures of each observation. If `persistent` is true, also those of observers that compare publications."""
    found: list[Measure] = []
    nodes = len(truth.subscribes)
    subscribers = int(np.count_nonzero(truth.subscribes))
    persistence, messages = PersistentObserver(nodes), 0
    for observation in observations:
        for flow in observation.flows:
            messages += len(flow.dst)
            if persistent:
                persistence.observe(*flow)
        src, dst = observation.flows[-1]
        members = leaf_rule.find_members(src, dst, nodes)
        # A mesh without any link still has its publisher.
        members[truth.publisher] = True
        network = measure_mesh(truth, members) | {"messages": float(len(dst)), "messages_total": float(messages)}
        reached = {
            "": network | dict(observation.facts),
            "leaf": measure_guess(truth, members, leaf_rule.find_leaves(src, dst, nodes))
            | measure_candidates(truth, leaf_rule.score_leaf_rule(src, dst, nodes)),
            "majority": measure_guess(truth, members, leaf_rule.name_majority(src, dst, nodes, subscribers)),
        }
        if persistent:
            reached["persistent-links"] = measure_guess(truth, members, persistence.name_by_links())
            reached["persistent-leaf"] = measure_guess(truth, members, persistence.name_by_nodes())
        found += [
            Measure(attack, metric, observation.step, value)
            for attack, metrics in reached.items()
            for metric, value in metrics.items()
        ]
    return found

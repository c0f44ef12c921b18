"""The cost of publications on the real machines of trees, in the simulator, under the names of the model's measures.

A few dozen nodes with real keys; every copy that a node sends to another is counted. So the model can be compared with
the machines at sizes that both can run.
"""

from __future__ import annotations

from pathlib import Path

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.tree_params import TreeCosts
from veilcast.lab.runs.tree.costs_model import MESSAGES_MAX
from veilcast.sim.tree.load import measure_load


def run(params: TreeCosts, seed: int, data: Path | None = None) -> list[Measure]:
    if params.tree != "paper":
        raise ConfigError("the machines measure the cost of the paper's trees, and nothing else")
    load = measure_load(params.nodes, params.readers, params.routing, params.publications, seed, MESSAGES_MAX)
    each = load.copies / load.publications
    return [
        Measure("", "copies", 0, each),
        Measure("", "messages", 0, each),
        Measure("", "busiest", 0, float(load.busiest)),
        Measure("", "server", 0, float(load.subscribers * load.publications)),
    ]

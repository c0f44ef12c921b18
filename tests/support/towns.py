"""What the tests of epochs and of insiders share: a population on a small world, a tenth of whom subscribe."""

from __future__ import annotations

from veilcast.lab.kernels.epochs import Population, settle
from veilcast.lab.kernels.graph import small_world
from veilcast.lab.kernels.mesh import cast


def town(nodes: int, degree: int, insiders: float, churn: float, seed: int) -> Population:
    graph = small_world(nodes, degree, 0.2, seed)
    return settle(graph, *cast(graph, 0.1, seed), insiders, churn, seed)

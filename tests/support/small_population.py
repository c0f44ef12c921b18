"""A population on a small world, a tenth of which subscribes, for tests of epochs and of insiders."""

from __future__ import annotations

from veilcast.lab.models.epochs import Population, settle_population
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import draw_roles


def make_population(nodes: int, degree: int, insiders: float, churn: float, seed: int) -> Population:
    graph = small_world(nodes, degree, 0.2, seed)
    return settle_population(graph, *draw_roles(graph, 0.1, seed), insiders, churn, seed)

"""Observation tables of runs on flows: the overlay, the roles, and a cell for each link that a publication takes.

The models of flows have neither clocks nor sizes. Publications are a second apart, all cells of a publication have its
time, and every cell has the size 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.models.graph import Graph
from veilcast.lab.runs.mesh.flow_observer import FlowObservation


def record_overlay(recorder: TableRecorder, graph: Graph, publisher: int, subscribers: NDArray[np.int32]) -> None:
    """Record the tables `topology` and `truth`."""
    if recorder.wants("topology"):
        u, v = map(name_nodes, graph.edges())
        recorder.record("topology", epoch=0, u=np.where(u < v, u, v), v=np.where(u < v, v, u))
    if recorder.wants("truth"):
        nodes = name_nodes(np.array([publisher, *subscribers]))
        roles = ["publisher"] + ["subscriber"] * len(subscribers)
        recorder.record("truth", topic=TOPIC, node=nodes, role=roles, since_us=0, until_us=NEVER_US)


def record_flows(recorder: TableRecorder, observations: Iterable[FlowObservation]) -> Iterator[FlowObservation]:
    """Record each publication in the table `cells`, and pass the observations on."""
    number = 0
    for observation in observations:
        for src, dst in observation.flows:
            recorder.record("cells", epoch=0, t_us=number * _APART_US, src=name_nodes(src), dst=name_nodes(dst), size=1)
            number += 1
        yield observation


def name_nodes(numbers: NDArray[Any]) -> NDArray[np.str_]:
    return np.char.add("n", numbers.astype(np.str_))


TOPIC: Final = "a"
"""The topic of a run that has one."""
NEVER_US: Final = 2**62
"""The end of a role that lasts."""
_APART_US: Final = 1_000_000

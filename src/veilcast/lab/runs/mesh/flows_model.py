"""Runs of one mesh on the models: overlay, mesh, covers and games as arrays, and the flows that an observer sees.

Every draw has its own random stream under the run's seed. So cells of an experiment that differ in the defence alone
share the overlay, the roles and the mesh: differences between their results are effects of the defence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshFlows
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.accuracy import RunTruth
from veilcast.lab.models import heartbeat_mesh
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.mesh import MeshTree, build_mesh
from veilcast.lab.models.rng import stream
from veilcast.lab.models.shell_game import GameOutcome, play_events, play_swaps
from veilcast.lab.runs.mesh.flow_observer import FlowObservation, PublicationFlow, measure_flows
from veilcast.lab.runs.mesh.flow_tables import record_flows, record_overlay
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay


def run(params: MeshFlows, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
    graph, publisher, subscribers = draw_overlay(params, seed, data)
    record_overlay(recorder, graph, publisher, subscribers)
    if params.pace == "beats":
        mesh: MeshTree | heartbeat_mesh.TimedMesh = heartbeat_mesh.lay_mesh(graph, publisher, subscribers, seed)
    else:
        mesh = build_mesh(graph, publisher, subscribers, seed, params.ties)
    subscribes = np.zeros(graph.nodes, dtype=np.bool_)
    subscribes[subscribers] = True
    if params.game == "none":
        observations = _publications(params, graph, mesh, seed)
    else:
        observations = _games(params, _add_covers(params, graph, mesh, seed), subscribers, seed)
    if recorder.wants("cells"):
        observations = record_flows(recorder, observations)
    return measure_flows(RunTruth(publisher, subscribes), observations, persistent=params.publications > 1)


def _publications(
    params: MeshFlows, graph: Graph, mesh: MeshTree | heartbeat_mesh.TimedMesh, seed: int
) -> Iterator[FlowObservation]:
    if params.look not in ("end", "publications"):
        raise ConfigError(f"look = {params.look!r} is for a shell game")
    fixed = PublicationFlow(*_add_covers(params, graph, mesh, seed).links())
    flows = []
    for number in range(1, params.publications + 1):
        if params.covers == "variable" and number > 1:
            flows.append(PublicationFlow(*_add_covers(params, graph, mesh, _publication_seed(seed, number)).links()))
        else:
            flows.append(fixed)
        if params.look == "publications" and number in params.steps:
            yield FlowObservation(number, tuple(flows))
            flows = []
    if params.look == "end":
        yield FlowObservation(0, tuple(flows))


def _games(params: MeshFlows, mesh: MeshTree, subscribers: NDArray[np.int32], seed: int) -> Iterator[FlowObservation]:
    if params.game == "swaps":
        if params.look not in ("swaps", "rounds"):
            raise ConfigError('bare swaps take no time and have no end: look = "swaps" or "rounds"')
        each = mesh.members.size if params.look == "rounds" else 1
        played = [play_swaps(mesh, round(step * each), seed) for step in params.steps]
    elif params.look not in ("end", "swaps", "seconds"):
        raise ConfigError(f"look = {params.look!r} is not for a shell game with waits")
    else:
        played = play_events(
            mesh,
            subscribers,
            seed,
            decay=params.decay,
            decay_by=params.decay_by,
            start=params.start,
            wait_s=params.wait_s,
            lock_s=params.lock_s,
            hop_s=params.hop_s,
            look=params.look,
            steps=params.steps,
        )
    for step, shuffled in zip(params.steps or (0.0,), played, strict=True):
        yield FlowObservation(step, (_flow(mesh, shuffled),), _facts(shuffled))


def _flow(mesh: MeshTree, shuffled: GameOutcome) -> PublicationFlow:
    """The flow of a publication after the game."""
    src, dst = mesh.links()
    return PublicationFlow(shuffled.occupant[src], shuffled.occupant[dst])


def _facts(shuffled: GameOutcome) -> dict[str, float]:
    return {
        "swaps": float(shuffled.swaps),
        "swap_messages": float(shuffled.messages),
        "seconds": shuffled.seconds,
    }


def _add_covers(params: MeshFlows, graph: Graph, mesh: MeshTree | heartbeat_mesh.TimedMesh, seed: int) -> MeshTree:
    if isinstance(mesh, heartbeat_mesh.TimedMesh):
        return mesh.mesh if params.cover == "none" else heartbeat_mesh.recruit_covers(graph, mesh, params.mu, seed)
    return mesh if params.cover == "none" else add_covers(graph, mesh, params.mu, seed, params.cover)


def _publication_seed(seed: int, publication: int) -> int:
    """The seed of the draws of one publication."""
    return int(stream(seed, "publication", publication)[0])

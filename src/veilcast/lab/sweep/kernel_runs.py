"""Runs on the kernels: overlay, mesh, covers and games as arrays, and the flows that an observer would see.

Every draw has a stream of its own under the run's seed, so cells of an experiment that differ in the defence alone
share the overlay, the roles and the mesh below it: differences between them are of the defence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.kernels import beats
from veilcast.lab.kernels.chance import stream
from veilcast.lab.kernels.cover import covered
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.mesh import Mesh, build
from veilcast.lab.kernels.shellgame import Shuffled, play_events, play_swaps
from veilcast.lab.measure.accuracy import Truth
from veilcast.lab.sweep import (
    broker_runs,
    clock_runs,
    epoch_runs,
    foil_runs,
    pruning_runs,
    relay_runs,
    token_runs,
    tree_runs,
)
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.scenes import scene
from veilcast.lab.sweep.sights import Flow, Sight, measures


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    if params.clocks:
        return clock_runs.run(params, seed)
    if params.foil:
        return foil_runs.run(params, seed, data)
    if params.pruner != "none":
        return pruning_runs.run(params, seed, data)
    if params.brokers:
        return broker_runs.run(params, seed, data)
    if params.tree:
        return tree_runs.run(params, seed)
    if params.relay:
        return relay_runs.run(params, seed, data)
    if params.topics:
        return token_runs.run(params, seed, data)
    if params.look == "epochs":
        return epoch_runs.run(params, seed, data)
    params.heed('runs that are not over epochs (look = "epochs")', "cover", "publications", "game")
    graph, publisher, subscribers = scene(params, seed, data)
    if params.pace == "beats":
        mesh: Mesh | beats.Laid = beats.laid(graph, publisher, subscribers, seed)
    else:
        mesh = build(graph, publisher, subscribers, seed, params.ties)
    subscribes = np.zeros(graph.nodes, dtype=np.bool_)
    subscribes[subscribers] = True
    if params.game == "none":
        sights = _publications(params, graph, mesh, seed)
    else:
        sights = _games(params, _covered(params, graph, mesh, seed), subscribers, seed)
    return measures(Truth(publisher, subscribes), sights, persistent=params.publications > 1)


def _publications(params: Params, graph: Graph, mesh: Mesh | beats.Laid, seed: int) -> Iterator[Sight]:
    if params.look not in ("end", "publications"):
        raise ConfigError(f"look = {params.look!r} is for a shell game")
    fixed = Flow(*_covered(params, graph, mesh, seed).links())
    flows = []
    for number in range(1, params.publications + 1):
        if params.covers == "variable" and number > 1:
            flows.append(Flow(*_covered(params, graph, mesh, _renewed(seed, number)).links()))
        else:
            flows.append(fixed)
        if params.look == "publications" and number in params.steps:
            yield Sight(number, tuple(flows))
            flows = []
    if params.look == "end":
        yield Sight(0, tuple(flows))


def _games(params: Params, mesh: Mesh, subscribers: NDArray[np.int32], seed: int) -> Iterator[Sight]:
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
        yield Sight(step, (_flow(mesh, shuffled),), _facts(shuffled))


def _flow(mesh: Mesh, shuffled: Shuffled) -> Flow:
    """Of a publication after the game."""
    src, dst = mesh.links()
    return Flow(shuffled.occupant[src], shuffled.occupant[dst])


def _facts(shuffled: Shuffled) -> dict[str, float]:
    return {
        "swaps": float(shuffled.swaps),
        "swap_messages": float(shuffled.messages),
        "seconds": shuffled.seconds,
    }


def _covered(params: Params, graph: Graph, mesh: Mesh | beats.Laid, seed: int) -> Mesh:
    if isinstance(mesh, beats.Laid):
        return mesh.mesh if params.cover == "none" else beats.covered(graph, mesh, params.mu, seed)
    return mesh if params.cover == "none" else covered(graph, mesh, params.mu, seed, params.cover)


def _renewed(seed: int, publication: int) -> int:
    """The seed of what is drawn anew for a publication."""
    return int(stream(seed, "publication", publication)[0])

"""Set-up of runs over epochs: the population, the policy of the mesh, and what wires show of an epoch.

`EpochCopies` is what a global observer sees of an epoch's notification: the links that it took, in which order. The
shell game moves nodes about before that. In a hardened mesh every link carries cells of one size at one rate at all
times. The observer then sees the whole overlay at once, and gets that as the flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.experiment.mesh_params import MeshEpochs, OverEpochsParams
from veilcast.lab.experiment.params import Measure
from veilcast.lab.models import hardened_mesh
from veilcast.lab.models.epochs import MESH_POLICIES, Epoch, MeshPolicy, Population, settle_population
from veilcast.lab.models.rng import stream
from veilcast.lab.models.shell_game import GameOutcome, play_swaps
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay


def average_epochs(epochs: Sequence[Mapping[str, float]], step: float) -> list[Measure]:
    """The mean of each number over the epochs that have it, as measures at this step."""
    metrics = dict.fromkeys(metric for facts in epochs for metric in facts)
    return [Measure("", metric, step, mean(facts[metric] for facts in epochs if metric in facts)) for metric in metrics]


Mask = NDArray[np.bool_]


class EpochCopies(NamedTuple):
    """The copies of an epoch's notification: source, destination, and time in hops after the first."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    hop: NDArray[np.int64]


def make_base_policy(params: OverEpochsParams) -> MeshPolicy:
    """The policy by which the mesh is laid in each epoch."""
    if params.kappa:
        return replace(MESH_POLICIES["H"], kappa=params.kappa)
    return MeshPolicy(
        origin="fresh" if params.origin == "fresh" else "publisher",
        mu=params.mu if params.cover == "one" else 0.0,
        recruits=_RECRUITS[params.covers],
    )


def make_policy(params: MeshEpochs) -> MeshPolicy:
    """The policy of a run over epochs, with its shell games and with the delays of publications."""
    return replace(
        make_base_policy(params),
        games=params.games,
        departures=params.departures,
        hold=params.hold,
        life=params.cover_life,
        parcels=params.parcels,
        notes=params.notes,
        relay_epochs=params.relay_epochs,
    )


def settle_people(params: MeshEpochs, seed: int, data: Path | None) -> Population:
    """The population of a run, with its insiders."""
    return settle_population(
        *draw_overlay(params, seed, data), params.insiders, params.churn, seed, steady=params.steady
    )


def play_games(people: Population, epoch: Epoch, games: float) -> GameOutcome:
    """The shell games of an epoch. The games that insiders observe (`coalition_view.play_handovers`) are of the same
    kind and drawn separately: no attacker here combines the two."""
    seed = int(stream(people.seed, "epoch's games", epoch.number)[0])
    return play_swaps(epoch.covered_mesh, round(games * epoch.covered_mesh.members.size), seed)


def observe_wires(epoch: Epoch, shuffled: GameOutcome | None) -> EpochCopies:
    """The view of the wires in an epoch of a mesh that hides nothing, after these games if there are any."""
    src, dst = epoch.covered_mesh.links()
    hop = hardened_mesh.mesh_depths(epoch.covered_mesh)[dst].astype(np.int64) - 1
    if shuffled is not None:
        src, dst = shuffled.occupant[src], shuffled.occupant[dst]
    return EpochCopies(src, dst, hop)


def observe_constant_wires(epoch: Epoch) -> EpochCopies:
    """The view of the wires in an epoch of a hardened mesh: all links alike, in both directions, at all times."""
    ends = np.repeat(np.arange(epoch.graph.nodes, dtype=np.int32), epoch.graph.degrees)
    return EpochCopies(ends, epoch.graph.targets, np.zeros(ends.size, np.int64))


def observe_formation(people: Population, epoch: Epoch, *, hidden: bool) -> Mask:
    """Members of the mesh when all of its subscribers have joined, three quarters, a half and a quarter of them; on
    constant wires all nodes that are present."""
    if hidden:
        return np.tile(epoch.present, (len(_SHARES), 1))
    order = np.random.default_rng(stream(people.seed, "comings", epoch.number)).random(people.graph.nodes)
    rows = []
    for share in _SHARES:
        inside = hardened_mesh.form_mesh(epoch.root_paths, epoch.asking & (order < share)).parent >= 0
        covers = (epoch.covered_mesh.parent >= 0) & (epoch.mesh.parent < 0)
        while (more := covers & ~inside & inside[epoch.covered_mesh.parent]).any():
            inside |= more
        rows.append(inside)
    return np.array(rows)


_SHARES: Final = (1.0, 0.75, 0.5, 0.25)
_RECRUITS: Final[Mapping[str, Literal["fresh", "kept", "sole"]]] = {
    "fixed": "kept",
    "sole": "sole",
    "variable": "fresh",
}

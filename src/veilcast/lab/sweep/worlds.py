"""Runs over epochs, as their parameters describe them: who lives where, how the mesh is run, and what wires show.

A `Wave` is what an observer of all wires has of one epoch: who is there, how they are connected, and over which links
the epoch's note went, in which order. The shell game moves nodes about before that. Where the mesh is hardened, every
link carries cells of one size at one rate, whether or not there is anything to say. Then what is seen is the whole
overlay at once, and whoever looks for a note in it is shown that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.kernels import hardened
from veilcast.lab.kernels.chance import stream
from veilcast.lab.kernels.epochs import CONDUCTS, Conduct, Epoch, Population, settle
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.shellgame import Shuffled, play_swaps
from veilcast.lab.sweep.params import Params
from veilcast.lab.sweep.scenes import scene

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Wave:
    present: Mask
    graph: Graph
    """Of those who are there."""
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    at: NDArray[np.int64]
    """When each copy went, in hops after the first."""
    looks: Mask
    """The members of the mesh when all of its readers have come, three quarters, a half and a quarter of them."""


def conduct(params: Params) -> Conduct:
    """How the mesh is run."""
    if params.look != "epochs":
        raise ConfigError('kappa, insiders, churn, games, origin and attacks are for runs over epochs: look = "epochs"')
    if params.game != "none" or params.cover == "each":
        raise ConfigError('over epochs there is a mesh with cover = "one", and games for each node of it')
    if params.kappa:
        if params.cover != "none" or params.games or params.origin == "fresh":
            raise ConfigError("over epochs a hardened mesh has neither covers nor games, and keeps its root")
        return replace(
            CONDUCTS["H"],
            kappa=params.kappa,
            departures=params.departures,
            hold=params.hold,
            relay_epochs=params.relay_epochs,
        )
    if params.departures or params.hold or params.relay_epochs or not params.steady:
        raise ConfigError("publishers come and go, and their notes wait, in a hardened mesh: kappa above 0")
    return Conduct(
        origin="fresh" if params.origin == "fresh" else "publisher",
        mu=params.mu if params.cover == "one" else 0.0,
        recruits=_RECRUITS[params.covers],
        games=params.games,
    )


def settled(params: Params, seed: int, data: Path | None) -> Population:
    """Who lives there, and who of them are insiders."""
    return settle(*scene(params, seed, data), params.insiders, params.churn, seed, steady=params.steady)


def played(people: Population, epoch: Epoch, games: float) -> Shuffled:
    """The shell games of an epoch. What insiders are told (`insiders.handovers`) is of games of the same kind, drawn by
    themselves: no attacker here puts the two together."""
    seed = int(stream(people.seed, "epoch's games", epoch.number)[0])
    return play_swaps(epoch.covered, round(games * epoch.covered.members.size), seed)


def wave(people: Population, epoch: Epoch, shuffled: Shuffled | None) -> Wave:
    """What wires show of an epoch that hides nothing, after these games if there are any."""
    src, dst = epoch.covered.links()
    at = hardened.depths(epoch.covered)[dst].astype(np.int64) - 1
    looks = _looks(people, epoch)
    if shuffled is not None:
        src, dst = shuffled.occupant[src], shuffled.occupant[dst]
    return Wave(epoch.present, epoch.graph, src, dst, at, looks)


def silence(epoch: Epoch) -> Wave:
    """What they show of one that hides everything: all links alike, in both directions, all the time."""
    ends = np.repeat(np.arange(epoch.graph.nodes, dtype=np.int32), epoch.graph.degrees)
    looks = np.tile(epoch.present, (len(_SHARES), 1))
    return Wave(epoch.present, epoch.graph, ends, epoch.graph.targets, np.zeros(ends.size, np.int64), looks)


def _looks(people: Population, epoch: Epoch) -> Mask:
    order = np.random.default_rng(stream(people.seed, "comings", epoch.number)).random(people.graph.nodes)
    rows = []
    for share in _SHARES:
        inside = hardened.form(epoch.found, epoch.asking & (order < share)).parent >= 0
        covers = (epoch.covered.parent >= 0) & (epoch.mesh.parent < 0)
        while (more := covers & ~inside & inside[epoch.covered.parent]).any():
            inside |= more
        rows.append(inside)
    return np.array(rows)


_SHARES: Final = (1.0, 0.75, 0.5, 0.25)
_RECRUITS: Final[Mapping[str, Literal["fresh", "kept", "sole"]]] = {
    "fixed": "kept",
    "sole": "sole",
    "variable": "fresh",
}

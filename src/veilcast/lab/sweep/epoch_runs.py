"""Runs over epochs on the kernels: what a mesh costs that is laid anew in each, hardened or not.

In every epoch some are away, a flood lays new ways, and one note is published. The hardened mesh (kappa above 0) hides
its flows in cells, so there is nothing here for an observer of flows; what a run gives is the price, on the average
over the epochs up to each step. Its attackers are insiders.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from veilcast.errors import ConfigError
from veilcast.lab.kernels import hardened
from veilcast.lab.kernels.epochs import Conduct, Epoch, Population, epochs, settle
from veilcast.lab.kernels.habits import key_of
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.scenes import scene


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    if params.look != "epochs":
        raise ConfigError('kappa, insiders and churn are for runs over epochs: look = "epochs"')
    if params.game != "none" or params.cover == "each" or (params.kappa and params.cover != "none"):
        raise ConfigError('over epochs there is a mesh with cover = "one", or a hardened one, and no shell game')
    people = settle(*scene(params, seed, data), params.insiders, params.churn, seed)
    found: list[Measure] = []
    before: list[dict[str, float]] = []
    for epoch in epochs(people, _conduct(params), int(params.steps[-1])):
        before.append(_facts(people, epoch, hides=params.kappa > 0))
        if epoch.number + 1 in params.steps:
            for metric in dict.fromkeys(name for facts in before for name in facts):
                values = [facts[metric] for facts in before if metric in facts]
                found.append(Measure("", metric, epoch.number + 1, mean(values)))
    return found


def _conduct(params: Params) -> Conduct:
    if params.kappa:
        return Conduct(origin="elected", parents="kept", timing="hidden", kappa=params.kappa, relays="stay")
    mu = params.mu if params.cover == "one" else 0.0
    return Conduct(mu=mu, recruits="kept" if params.covers == "fixed" else "fresh")


def _facts(people: Population, epoch: Epoch, *, hides: bool) -> dict[str, float]:
    """Of one note; one whose publisher must wait for its successor has a mesh, and no way to it."""
    mesh = epoch.covered
    present = people.subscribers[epoch.present[people.subscribers]]
    facts = {"overlay": float(mesh.members.size), "notes": float(mesh.members.size - 1)}
    if not hides:
        direct = hardened.Stem(epoch.found.parent[[people.publisher]], 0, 0)
        cost = hardened.cost(mesh, direct, present)
    else:
        key = key_of(people.seed, "life")
        way = hardened.stem(people.graph, epoch.graph, epoch.found, people.publisher, hardened.ONWARD, key)
        facts["waits"] = float(way is None)
        if way is None:
            return facts
        cost = hardened.cost(mesh, way, present)
        facts["stem"] = float(way.path.size - 1)
    return facts | {"messages": float(cost.messages), "hops": cost.hops, "reached": cost.reached}

"""Runs over epochs on the kernels: what a mesh costs that is laid anew in each, and what attackers learn of it.

In every epoch some are away, a flood lays new ways, and one note is published. What a run gives of the network is the
price, on the average over the epochs up to each step; and of every attacker that it asks for, what that has reached by
the step with all that it saw (`suite`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.lab.kernels import hardened
from veilcast.lab.kernels.epochs import Conduct, Epoch, Population, epochs
from veilcast.lab.kernels.habits import key_of
from veilcast.lab.kernels.insiders import stem_of
from veilcast.lab.kernels.publishing import published
from veilcast.lab.measure.cost import of_delivery
from veilcast.lab.sweep.averages import averages
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.suite import Suite
from veilcast.lab.sweep.worlds import conduct as conduct_of
from veilcast.lab.sweep.worlds import played, settled
from veilcast.wire.geometry import CELL


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    way = conduct_of(params)
    params.heed("runs over epochs", *_HEEDED)
    people = settled(params, seed, data)
    suite = Suite(params, people, way, data)
    found: list[Measure] = []
    before: list[dict[str, float]] = []
    for epoch in epochs(people, way, int(params.steps[-1])):
        shuffled = played(people, epoch, way.games) if way.games else None
        facts = _facts(people, way, epoch, params.hop_s, hides=params.kappa > 0)
        if shuffled is not None:
            facts["control"] = float(shuffled.messages)
        before.append(facts)
        suite.see(epoch, shuffled)
        if epoch.number + 1 in params.steps:
            found += averages(before, epoch.number + 1)
            if params.kappa:
                found.append(Measure("", "delay", epoch.number + 1, _delay(people, way, before)))
            found += suite.measures()
    return found


def _delay(people: Population, way: Conduct, facts: list[dict[str, float]]) -> float:
    """For how many epochs a note that was read had waited, with its publisher and with the root."""
    there, waits = np.array([[fact["there"], fact["waits"]] for fact in facts], np.bool_).T
    return published(there, ~waits, way.departures, way.hold, key_of(people.seed, "notes")).delay


def _facts(people: Population, conduct: Conduct, epoch: Epoch, hop_s: float, *, hides: bool) -> dict[str, float]:
    """Of one note; one whose publisher must wait for its successor has a mesh, and no way to it."""
    mesh = epoch.covered
    present = people.subscribers[epoch.present[people.subscribers]]
    facts = {"overlay": float(mesh.members.size), "notes": float(mesh.members.size - 1)}
    if not hides:
        direct = hardened.Stem(epoch.found.parent[[epoch.found.root]], 0, 0)
        cost = hardened.cost(mesh, direct, present)
    else:
        way = stem_of(people, conduct, epoch)
        facts |= {"there": float(epoch.present[people.publisher]), "waits": float(way is None)}
        if way is None:
            return facts
        cost = hardened.cost(mesh, way, present)
        facts["stem"] = float(way.path.size - 1)
    facts |= {"messages": float(cost.messages), "hops": cost.hops, "reached": cost.reached}
    return facts | of_delivery(cost.messages, CELL, round(cost.reached * present.size), cost.hops, hop_s)


_HEEDED: Final = (
    *("cover", "kappa", "insiders", "churn", "origin", "games"),
    *("steady", "departures", "hold", "relay_epochs", "attacks"),
)

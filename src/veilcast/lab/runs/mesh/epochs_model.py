"""Runs over epochs on the models: the cost of a mesh that is laid again in each epoch, and what attackers learn.

In every epoch some nodes are away, a flood lays new paths, and one notification is published. A run returns the costs,
averaged over the epochs up to each step. What its observers saw becomes tables (`epoch_tables`), and for every attacker
it returns the success at the step, with all that the attacker saw until then (`attack_suite`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.measure.delivery_cost import delivery_cost
from veilcast.lab.models import hardened_mesh
from veilcast.lab.models.coalition_view import epoch_stem, schedule_notes
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.runs.mesh.attack_suite import choose_attackers, score_tables
from veilcast.lab.runs.mesh.coalition_training import train_coalition_classifiers
from veilcast.lab.runs.mesh.epoch_setup import average_epochs, play_games, settle_people
from veilcast.lab.runs.mesh.epoch_setup import make_policy as conduct_of
from veilcast.lab.runs.mesh.epoch_tables import EpochTables
from veilcast.lab.tables import OBSERVATIONS
from veilcast.wire.geometry import CELL


def run(
    params: MeshEpochs, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    way, attackers = conduct_of(params), choose_attackers(params)
    people = settle_people(params, seed, data)
    kept = [name for name in OBSERVATIONS if recorder.wants(name)]
    tables = EpochTables(params, people, way, attackers, kept)
    found: list[Measure] = []
    before: list[dict[str, float]] = []
    for epoch in run_epochs(people, way, int(params.steps[-1])):
        shuffled = play_games(people, epoch, way.games) if way.games else None
        facts = _facts(people, way, epoch, params.hop_s, hides=params.kappa > 0)
        if shuffled is not None:
            facts["control"] = float(shuffled.messages)
        before.append(facts)
        tables.observe_epoch(epoch, shuffled)
        if epoch.number + 1 in params.steps:
            found += average_epochs(before, epoch.number + 1)
            if params.kappa:
                found.append(Measure("", "delay", epoch.number + 1, _delay(people, way, before)))
    if attackers or kept:
        tables.watch_links()
        trained = train_coalition_classifiers(people, params, params.attacks, data)
        found += score_tables(tables, attackers, params, seed, trained, recorder)
    return found


def _delay(people: Population, way: MeshPolicy, facts: list[dict[str, float]]) -> float:
    """Epochs that a delivered notification had waited, with its publisher and with the root."""
    there, waits = np.array([[fact["there"], fact["waits"]] for fact in facts], np.bool_).T
    return schedule_notes(people, way, there, ~waits).delay


def _facts(people: Population, conduct: MeshPolicy, epoch: Epoch, hop_s: float, *, hides: bool) -> dict[str, float]:
    """The cost of one notification. If the publisher must wait for its successor, there is a mesh and no path to it."""
    mesh = epoch.covered_mesh
    present = people.subscribers[epoch.present[people.subscribers]]
    facts = {"overlay": float(mesh.members.size), "notes": float(mesh.members.size - 1)}
    if not hides:
        direct = hardened_mesh.StemWalk(epoch.root_paths.parent[[epoch.root_paths.root]], 0, 0)
        cost = hardened_mesh.measure_cost(mesh, direct, present)
    else:
        way = epoch_stem(people, conduct, epoch)
        facts |= {"there": float(epoch.present[people.publisher]), "waits": float(way is None)}
        if way is None:
            return facts
        cost = hardened_mesh.measure_cost(mesh, way, present)
        facts["stem"] = float(way.path.size - 1)
    facts |= {"messages": float(cost.messages), "hops": cost.hops, "reached": cost.reached_share}
    return facts | delivery_cost(cost.messages, CELL, round(cost.reached_share * present.size), cost.hops, hop_s)

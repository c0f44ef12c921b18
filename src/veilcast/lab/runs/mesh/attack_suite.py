"""All attackers that a run over epochs names, on its tables; and the measures of their guesses.

The jobs see the tables of `epoch_tables` and nothing else: a global observer its wires, a coalition its own links, each
up to a step and no further. Only the measures join the truth. Some measures need the guesses of a second attack, which
is then run beside the first (`_BESIDE`): members of the mesh, certain subscribers, and nodes that a coalition suspects
for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit, softmax

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import Classifiers, CoalitionObservations
from veilcast.lab.attack.observer.epoch_job import guess_from_epochs
from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER, Attacker, find_attacker
from veilcast.lab.attack.table_engine import AnyTable, concat_rows
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import TableRecorder, record_tables
from veilcast.lab.measure import ranking
from veilcast.lab.measure.attack_measures import (
    measure_probabilities,
    measure_publisher_attack,
    measure_subscriber_attack,
)
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.mesh.coalition_training import train_coalition_classifiers
from veilcast.lab.runs.mesh.epoch_setup import settle_people
from veilcast.lab.runs.mesh.epoch_tables import EpochTables
from veilcast.lab.tables import GuessRow, arrow_schema

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


def choose_attackers(params: MeshEpochs) -> list[Attacker[Any]]:
    """The attackers of a run, and those that its measures need beside them."""
    found = [find_attacker(name, EpochObservations, CoalitionObservations) for name in params.attacks]
    inside = [each for each in found if each.observes is CoalitionObservations]
    if params.origin == "fresh" and any(each.role == PUBLISHER for each in found):
        raise ConfigError("where another node publishes in each epoch there is no publisher to be found")
    if inside and not params.insiders:
        raise ConfigError("attacks by insiders need some: insiders above 0")
    beside = {name for each in found for name in _BESIDE.get(each.name, ())}
    if any(each.role == SUBSCRIBER for each in found if each not in inside):
        beside.add("mesh-members")
    return found + [find_attacker(name, EpochObservations, CoalitionObservations) for name in sorted(beside)]


def score_tables(
    tables: EpochTables,
    attackers: Sequence[Attacker[Any]],
    params: MeshEpochs,
    seed: int,
    trained: Classifiers,
    recorder: TableRecorder,
) -> list[Measure]:
    """Attack the tables of a run and measure the guesses."""
    observed, truth = tables.observed(), tables.truth()
    guesses = attack_run(observed, attackers, params.steps, trained)
    record_tables(recorder, observed | {"truth": truth, "guesses": guesses})
    return list(measure_run(guesses, truth, params.attacks, seed))


def attack_run(
    observed: Mapping[str, AnyTable], attackers: Sequence[Attacker[Any]], steps: Sequence[float], trained: Classifiers
) -> AnyTable:
    """The guesses of these attackers at these steps."""
    inside = [each.name for each in attackers if each.observes is CoalitionObservations]
    outside = [each.name for each in attackers if each.observes is not CoalitionObservations]
    epochs = [int(step) for step in steps]
    parts: list[AnyTable] = []
    if outside:
        parts.append(guess_from_epochs(observed, outside, epochs))
    if inside:
        parts.append(guess_from_coalition(observed, inside, epochs, trained=trained))
    return concat_rows(parts) if parts else arrow_schema(GuessRow).empty_table()


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshEpochs, names: Collection[str], data: Path | None
) -> AnyTable:
    """The guesses of these attackers on kept tables, or of those that the parameters name."""
    asked = msgspec.structs.replace(params, attacks=tuple(names)) if names else params
    attackers = choose_attackers(asked)
    trained = train_coalition_classifiers(settle_people(asked, 0, data), asked, asked.attacks, data)
    return attack_run(observed, attackers, asked.steps, trained)


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: MeshEpochs, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of those that the parameters name."""
    return list(measure_run(guesses, truth, names or params.attacks, seed))


def measure_run(guesses: pa.Table, truth: pa.Table, attacks: Collection[str], seed: int) -> Iterator[Measure]:
    """The success of each of these attacks at each step. The seed is for shuffles."""
    found = _GuessedScores(guesses)
    roles = _Roles(truth)
    for attack, role, step in found.targets():
        if attack in attacks:
            if role == PUBLISHER:
                measures = _measure_publisher(attack, step, found, roles)
            else:
                measures = _measure_subscribers(attack, step, found, roles, seed)
            yield from (Measure(attack, metric, step, value) for metric, value in measures.items())


class _GuessedScores:
    """Scores by attack, role and step; nodes are in the order of their names."""

    def __init__(self, guesses: pa.Table) -> None:
        attack, role = (guesses[name].combine_chunks().dictionary_encode() for name in ("attack", "role"))
        step, node, score = (guesses[name].combine_chunks() for name in ("epochs", "node", "score"))
        columns = attack.indices.to_numpy(), role.indices.to_numpy(), step.to_numpy()
        changes = np.flatnonzero(np.any([np.diff(column) != 0 for column in columns], axis=0)) + 1
        self._found: dict[tuple[str, str, int], tuple[pa.Array, Scores]] = {}
        for first, end in zip([0, *changes], [*changes, len(guesses)], strict=True):
            if end > first:
                key = (attack[int(first)].as_py(), role[int(first)].as_py(), step[int(first)].as_py())
                self._found[key] = node.slice(first, end - first), score.to_numpy()[first:end]

    def targets(self) -> list[tuple[str, str, int]]:
        return list(self._found)

    def of(self, attack: str, role: str, step: int) -> tuple[pa.Array, Scores]:
        return self._found[attack, role, step]

    def aligned(self, attack: str, step: int, nodes: pa.Array) -> Scores:
        """The scores of these nodes by an attack that looks for any role; 0 without a guess."""
        for (name, _, when), (known, scores) in self._found.items():
            if (name, when) == (attack, step):
                place = pc.index_in(nodes, known)
                return np.where(place.is_valid(), scores[pc.fill_null(place, 0).to_numpy()], 0.0)
        return np.zeros(len(nodes))


class _Roles:
    def __init__(self, truth: pa.Table) -> None:
        self._truth = truth

    def mask(self, role: str, nodes: pa.Array) -> Mask:
        those = self._truth.filter(pc.equal(self._truth["role"], role))["node"].combine_chunks()
        return np.asarray(pc.is_in(nodes, those).to_numpy(zero_copy_only=False), np.bool_)


def _measure_subscribers(attack: str, step: int, found: _GuessedScores, roles: _Roles, seed: int) -> dict[str, float]:
    nodes, scores = found.of(attack, SUBSCRIBER, step)
    subscribes, exposed = roles.mask("subscriber", nodes), roles.mask("exposed", nodes)
    judged = ~roles.mask("insider", nodes) & ~roles.mask("publisher", nodes)
    shuffle = int(stream(seed, "shuffles", attack)[0])
    measures = measure_subscriber_attack(scores, subscribes, judged, exposed, shuffle)
    if attack in _LOG_ODDS:
        share = float(np.mean(subscribes))
        prior = np.log(share / (1 - share)) if attack == "closure" else 0.0
        measures |= measure_probabilities(expit(scores + prior), judged)
    if find_attacker(attack, EpochObservations, CoalitionObservations).observes is not CoalitionObservations:
        inside = judged & (found.aligned("mesh-members", step, nodes) > 0)
        measures["auc_mesh"] = ranking.auc(scores[inside], subscribes[inside])
    if attack == "closure":
        certain = found.aligned("closure-certain", step, nodes) > 0
        measures["certain"] = float(np.count_nonzero(certain))
        if certain.any():
            measures["certain_precision"] = float(np.mean(subscribes[certain]))
    return measures


def _measure_publisher(attack: str, step: int, found: _GuessedScores, roles: _Roles) -> dict[str, float]:
    nodes, scores = found.of(attack, PUBLISHER, step)
    honest, own = ~roles.mask("insider", nodes), int(np.argmax(roles.mask("publisher", nodes)))
    measures = measure_publisher_attack(scores, own, honest)
    if attack in _LOG_LIKELIHOODS:
        measures |= measure_probabilities(softmax(scores), honest)
    for lasting in _BESIDE.get(attack, ()):
        measures["disclosed"] = float(found.aligned(lasting, step, nodes)[own] > 0)
    return measures


_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "closure": ("closure-certain",),
    "first-spy": ("first-spy-lasting",),
    "trilateration": ("trilateration-lasting",),
}
_LOG_ODDS: Final = frozenset({"closure", "group-testing"})
_LOG_LIKELIHOODS: Final = frozenset({"predecessor", "presence", "sender"})

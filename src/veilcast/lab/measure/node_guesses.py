"""The measures of guesses about nodes: the tables `guesses` and `truth` of one run in, one number for each measure out.

1. Guesses are compared by attack, role and number of epochs. If they tell topics apart, each topic is measured by
   itself, and the mean over topics counts.
2. Subscribers are looked for among all nodes except publishers and the observing insiders. Publishers are looked for
   among all nodes except insiders.
3. One publisher has a rank, and the first guess is right or wrong. Several publishers are measured by the AUC, as
   subscribers are, with the role in the name of the metric.

The truth is rows of nodes with a role: `subscriber`, `publisher`, `insider`, and `exposed` for honest nodes that have
an insider as a neighbour. Guesses about other roles have no measures here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit, softmax

from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER
from veilcast.lab.measure import ranking
from veilcast.lab.measure.attack_measures import (
    measure_probabilities,
    measure_publisher_attack,
    measure_subscriber_attack,
)
from veilcast.lab.models.rng import stream

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]
NodeMeasure: TypeAlias = tuple[str, str, int, float]
"""Attack, metric, number of epochs, value."""


def measure_node_guesses(
    guesses: pa.Table, truth: pa.Table, attacks: Collection[str] | None = None, seed: int = 0
) -> Iterator[NodeMeasure]:
    """The measures of these attacks in one run, or of all. The seed is for shuffles."""
    guesses = guesses.sort_by([(name, "ascending") for name in _ORDER])
    known = set(pc.unique(truth["topic"]).to_pylist())
    found: dict[tuple[str, str, int], list[float]] = {}
    for topic in pc.unique(guesses["topic"]).to_pylist():
        own = truth.filter(pc.equal(truth["topic"], topic)) if topic in known else truth
        of_topic = guesses.filter(pc.equal(guesses["topic"], topic))
        for attack, metric, epochs, value in _measure_topic(of_topic, own, attacks, seed):
            found.setdefault((attack, metric, epochs), []).append(value)
    for key, values in found.items():
        yield *key, fmean(values)


def _measure_topic(
    guesses: pa.Table, truth: pa.Table, attacks: Collection[str] | None, seed: int
) -> Iterator[NodeMeasure]:
    found, roles = _GuessedScores(guesses), _Roles(truth)
    for attack, role, epochs in found.targets():
        if attacks is None or attack in attacks:
            measures: dict[str, float] = {}
            if role == PUBLISHER:
                measures = _measure_publishers(attack, epochs, found, roles)
            elif role == SUBSCRIBER:
                measures = _measure_subscribers(attack, epochs, found, roles, seed)
            yield from ((attack, metric, epochs, value) for metric, value in measures.items())


class _GuessedScores:
    """Scores by attack, role and number of epochs; nodes are in the order of their names."""

    def __init__(self, guesses: pa.Table) -> None:
        attack, role = (guesses[name].combine_chunks().dictionary_encode() for name in ("attack", "role"))
        step, node, score = (guesses[name].combine_chunks() for name in ("epochs", "node", "score"))
        columns = attack.indices.to_numpy(), role.indices.to_numpy(), step.to_numpy()
        changes = np.flatnonzero(np.any([np.diff(column) != 0 for column in columns], axis=0)) + 1
        self._found: dict[tuple[str, str, int], tuple[pa.Array, Scores]] = {}
        self._outside: set[str] = set()
        for first, end in zip([0, *changes], [*changes, len(guesses)], strict=True):
            if end > first:
                key = (attack[int(first)].as_py(), role[int(first)].as_py(), step[int(first)].as_py())
                self._found[key] = node.slice(first, end - first), score.to_numpy()[first:end]
                if not guesses["coalition"][int(first)].as_py():
                    self._outside.add(key[0])

    def targets(self) -> list[tuple[str, str, int]]:
        return list(self._found)

    def of(self, attack: str, role: str, epochs: int) -> tuple[pa.Array, Scores]:
        return self._found[attack, role, epochs]

    def has(self, attack: str, epochs: int) -> bool:
        return any((name, when) == (attack, epochs) for name, _, when in self._found)

    def is_outside(self, attack: str) -> bool:
        """Whether it is an attack without insiders."""
        return attack in self._outside

    def aligned(self, attack: str, epochs: int, nodes: pa.Array) -> Scores:
        """The scores of these nodes by an attack that looks for any role; 0 without a guess."""
        for (name, _, when), (known, scores) in self._found.items():
            if (name, when) == (attack, epochs):
                place = pc.index_in(nodes, known)
                return np.where(place.is_valid(), scores[pc.fill_null(place, 0).to_numpy()], 0.0)
        return np.zeros(len(nodes))


class _Roles:
    def __init__(self, truth: pa.Table) -> None:
        self._truth = truth

    def mask(self, role: str, nodes: pa.Array) -> Mask:
        those = self._truth.filter(pc.equal(self._truth["role"], role))["node"].combine_chunks()
        return np.asarray(pc.is_in(nodes, those).to_numpy(zero_copy_only=False), np.bool_)


def _measure_subscribers(attack: str, epochs: int, found: _GuessedScores, roles: _Roles, seed: int) -> dict[str, float]:
    nodes, scores = found.of(attack, SUBSCRIBER, epochs)
    subscribes, exposed = roles.mask("subscriber", nodes), roles.mask("exposed", nodes)
    judged = ~roles.mask("insider", nodes) & ~roles.mask("publisher", nodes)
    shuffle = int(stream(seed, "shuffles", attack)[0])
    measures = measure_subscriber_attack(scores, subscribes, judged, exposed, shuffle)
    if attack in _LOG_ODDS:
        share = min(max(float(np.mean(subscribes)), _LEAST), 1 - _LEAST)
        prior = np.log(share / (1 - share)) if attack == "closure" else 0.0
        probability = expit(scores + prior)
        # Odds so small that they vanish tell that the attack finds no subscriber.
        if probability[judged].any():
            measures |= measure_probabilities(probability, judged)
    if found.is_outside(attack) and found.has(_MEMBERS, epochs):
        inside = judged & (found.aligned(_MEMBERS, epochs, nodes) > 0)
        measures["auc_mesh"] = ranking.auc(scores[inside], subscribes[inside])
    if attack == "closure" and found.has("closure-certain", epochs):
        certain = found.aligned("closure-certain", epochs, nodes) > 0
        measures["certain"] = float(np.count_nonzero(certain))
        if certain.any():
            measures["certain_precision"] = float(np.mean(subscribes[certain]))
    return measures


def _measure_publishers(attack: str, epochs: int, found: _GuessedScores, roles: _Roles) -> dict[str, float]:
    nodes, scores = found.of(attack, PUBLISHER, epochs)
    honest, publishes = ~roles.mask("insider", nodes), roles.mask("publisher", nodes)
    if np.count_nonzero(publishes) != 1:
        measured = ranking.measure_ranking(scores[honest], publishes[honest])
        if measured:
            measured["base"] = float(np.mean(publishes[honest]))
        return {f"{metric}_publisher": value for metric, value in measured.items()}
    own = int(np.argmax(publishes))
    measures = measure_publisher_attack(scores, own, honest)
    if attack in _LOG_LIKELIHOODS:
        measures |= measure_probabilities(softmax(scores), honest)
    for lasting in BESIDE.get(attack, ()):
        if found.has(lasting, epochs):
            measures["disclosed"] = float(found.aligned(lasting, epochs, nodes)[own] > 0)
    return measures


BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "closure": ("closure-certain",),
    "first-spy": ("first-spy-lasting",),
    "trilateration": ("trilateration-lasting",),
}
"""Attacks whose guesses some measures of an attack need, beside its own."""
_LEAST: Final = 1e-9
"""Smallest share of subscribers, so that a topic without any has odds."""
_MEMBERS: Final = "mesh-members"
_LOG_ODDS: Final = frozenset({"closure", "group-testing"})
_LOG_LIKELIHOODS: Final = frozenset({"predecessor", "presence", "sender"})
_ORDER: Final = ("topic", "attack", "role", "epochs", "node")

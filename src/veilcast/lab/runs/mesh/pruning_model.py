"""Runs of one insider that prunes branches: the anonymity sets that P0 and P1 promise, beside those that remain.

As the publisher, the insider looks for readers: first as in the papers ("pruning"), then also by the time at which
branches answer ("pruning-timed"). P0 promises a reader a set of |N-| + 1, its children and itself; P1 promises its
whole branch. As a subscriber, the insider looks for the publisher: by the neighbour that told first ("pruning"), or by
all neighbours with the nearest chain values ("pruning-chains"). P0 promises |N+| + 1, "his predecessors in the mesh
plus himself". By P0's Eq. 2 a sole publisher has no predecessors, and the promise is empty; it is compared here with
the number of direct subscribers of the publisher.

Subscribers that no advert reaches are in no branch: the sets are those of the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider import lone_insider
from veilcast.lab.experiment.mesh_params import MeshPruning
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure import anonymity, definitions, information, ranking
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.models.coalition_view import subscription_delays
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs, settle_population
from veilcast.lab.models.rng import draw_below, stream
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay


def run(params: MeshPruning, seed: int, data: Path | None = None) -> list[Measure]:
    people = settle_population(*draw_overlay(params, seed, data), 0.0, 0.0, seed)
    epoch = next(run_epochs(people, MeshPolicy(), 1))
    readers = people.subscribers[epoch.mesh.distance[people.subscribers] > 0]
    if not readers.size:
        raise ConfigError("where no subscriber is reached there is nothing to prune")
    learned = (_readers if params.pruner == "publisher" else _publisher)(people, epoch, readers)
    return [Measure(attack, name, 0, value) for attack, found in learned.items() for name, value in found.items()]


def _readers(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """The publisher's inference from the neighbours that subscribe."""
    graph, insider = people.graph, people.publisher
    beside = graph.neighbours(insider)
    asked, delay = epoch.mesh.parent[beside] == insider, subscription_delays(epoch)[beside]
    rate = people.subscribers.size / (graph.nodes - 1)
    subscribes = _mask(people.subscribers, graph.nodes)
    others = np.arange(graph.nodes) != insider
    branches = _branches(people, epoch, readers)
    promised = _child_counts(epoch)[readers] + 1
    seed = int(stream(people.seed, "calibration")[0])
    found = {"": {"branch_mean": float(branches.mean()), "branch_min": float(branches.min())}}
    for attack, when in (("pruning", None), ("pruning-timed", delay)):
        guessed = lone_insider.score_branch_subscribers(graph, insider, asked, rate, when)
        guess, positive = guessed[others], subscribes[others]
        # The papers' insider suspects all nodes of a branch equally; with a clock it does not.
        suspects = branches if when is None else np.count_nonzero(guess >= guessed[readers][:, None], axis=1)
        honest = information.measure_calibration(guess, positive, seed, draws=20)
        found[attack] = ranking.measure_ranking(guess, positive)
        found[attack] |= anonymity.summarise_sets(anonymity.anonymity_set_sizes(guess, positive))
        found[attack] |= {
            "base": rate,
            "below_promise": float(np.mean(suspects < promised)),
            "first_right": definitions.measure_topic_subscriber(guessed, subscribes, others).probability,
            "calibration": honest.error,
            "calibration_floor": honest.floor,
        }
    return found


def _publisher(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """A subscriber's inference from the adverts that it receives."""
    graph, publisher, distance = people.graph, people.publisher, epoch.mesh.distance
    insider = int(readers[draw_below(stream(people.seed, "pruner"), readers.size)])
    beside = graph.neighbours(insider)
    honest = np.arange(graph.nodes) != insider
    promised = int(_child_counts(epoch)[publisher]) + 1
    guesses = {
        "pruning": lone_insider.score_first_branch(
            graph, insider, int(np.searchsorted(beside, epoch.mesh.parent[insider]))
        ),
        "pruning-chains": lone_insider.score_nearest_branches(
            graph, insider, distance[beside] == distance[insider] - 1
        ),
    }
    found = {}
    for attack, guessed in guesses.items():
        size = int(np.count_nonzero(guessed))
        named = definitions.measure_publisher(guessed, publisher, honest)
        found[attack] = {
            "set": float(size),
            "success": named.probability,
            "base": named.bound,
            "below_promise": float(size < promised),
        }
    return found


def _branches(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each reader, the number of nodes that the publisher cannot tell from it, by P1: nodes whose paths can arrive
    at the same neighbour of the publisher."""
    _, ways = lone_insider.find_branches(people.graph, people.publisher)
    size = np.count_nonzero(ways, axis=0)
    entrance = np.searchsorted(people.graph.neighbours(people.publisher), _entrances(people, epoch, readers))
    found: NDArray[np.int64] = size[entrance]
    return found


def _entrances(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> NDArray[np.int32]:
    """For each reader, the neighbour of the publisher at which its subscription arrived."""
    at, parent = readers.copy(), epoch.mesh.parent
    while (further := parent[at] != people.publisher).any():
        at[further] = parent[at[further]]
    return at


def _child_counts(epoch: Epoch) -> NDArray[np.int64]:
    """For each node, the size of N-: the number of nodes that it forwards to."""
    offsets, _ = epoch.mesh.children
    return np.diff(offsets)


def _mask(nodes: NDArray[np.int32], count: int) -> Mask:
    mask = np.zeros(count, np.bool_)
    mask[nodes] = True
    return mask

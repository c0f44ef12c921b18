"""Runs of one insider who prunes branches: the anonymity sets that P0 and P1 promise, held against those it leaves.

As the publisher it looks for readers, first as the papers have it ("pruning"), then with an eye on when branches answer
("pruning-timed"). P0 promises a reader |N-| + 1, those who hang on it and itself, P1 all of its branch. As a subscriber
it looks for the publisher, by the neighbour that told first ("pruning"), or by all whose chain values are nearest
("pruning-chains"). P0 promises |N+| + 1, "his predecessors in the mesh plus himself". By its Eq. 2 a sole publisher has
none, and the promise is empty; what is held against it here are those who subscribed with the publisher.

Subscribers whom no advert reaches are in no branch: the sets are those of the others.
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
    learnt = (_readers if params.pruner == "publisher" else _publisher)(people, epoch, readers)
    return [Measure(attack, name, 0, value) for attack, found in learnt.items() for name, value in found.items()]


def _readers(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """What a publisher makes of who subscribes with it."""
    graph, insider = people.graph, people.publisher
    beside = graph.neighbours(insider)
    asked, delay = epoch.mesh.parent[beside] == insider, subscription_delays(epoch)[beside]
    rate = people.subscribers.size / (graph.nodes - 1)
    subscribes = _mask(people.subscribers, graph.nodes)
    others = np.arange(graph.nodes) != insider
    branches = _branches(people, epoch, readers)
    promised = _children(epoch)[readers] + 1
    seed = int(stream(people.seed, "calibration")[0])
    found = {"": {"branch_mean": float(branches.mean()), "branch_min": float(branches.min())}}
    for attack, when in (("pruning", None), ("pruning-timed", delay)):
        said = lone_insider.score_branch_subscribers(graph, insider, asked, rate, when)
        guess, positive = said[others], subscribes[others]
        # The papers' insider holds all of a branch for equally suspect; with a clock it does not.
        suspects = branches if when is None else np.count_nonzero(guess >= said[readers][:, None], axis=1)
        honest = information.measure_calibration(guess, positive, seed, draws=20)
        found[attack] = ranking.measure_ranking(guess, positive)
        found[attack] |= anonymity.summarise_sets(anonymity.anonymity_set_sizes(guess, positive))
        found[attack] |= {
            "base": rate,
            "below_promise": float(np.mean(suspects < promised)),
            "first_right": definitions.measure_topic_subscriber(said, subscribes, others).probability,
            "calibration": honest.error,
            "calibration_floor": honest.floor,
        }
    return found


def _publisher(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """What one of its subscribers makes of the adverts that it gets."""
    graph, publisher, distance = people.graph, people.publisher, epoch.mesh.distance
    insider = int(readers[draw_below(stream(people.seed, "pruner"), readers.size)])
    beside = graph.neighbours(insider)
    honest = np.arange(graph.nodes) != insider
    promised = int(_children(epoch)[publisher]) + 1
    guesses = {
        "pruning": lone_insider.score_first_branch(
            graph, insider, int(np.searchsorted(beside, epoch.mesh.parent[insider]))
        ),
        "pruning-chains": lone_insider.score_nearest_branches(
            graph, insider, distance[beside] == distance[insider] - 1
        ),
    }
    found = {}
    for attack, said in guesses.items():
        size = int(np.count_nonzero(said))
        named = definitions.measure_publisher(said, publisher, honest)
        found[attack] = {
            "set": float(size),
            "success": named.probability,
            "base": named.bound,
            "below_promise": float(size < promised),
        }
    return found


def _branches(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each reader how many the publisher cannot tell from it, by P1: those whose ways may come in where its own
    does."""
    _, ways = lone_insider.find_branches(people.graph, people.publisher)
    size = np.count_nonzero(ways, axis=0)
    entrance = np.searchsorted(people.graph.neighbours(people.publisher), _entrances(people, epoch, readers))
    found: NDArray[np.int64] = size[entrance]
    return found


def _entrances(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> NDArray[np.int32]:
    """For each reader the neighbour of the publisher that its subscription came in by."""
    at, parent = readers.copy(), epoch.mesh.parent
    while (further := parent[at] != people.publisher).any():
        at[further] = parent[at[further]]
    return at


def _children(epoch: Epoch) -> NDArray[np.int64]:
    """By node, the size of N-: how many it sends notes on to."""
    offsets, _ = epoch.mesh.children
    return np.diff(offsets)


def _mask(nodes: NDArray[np.int32], count: int) -> Mask:
    mask = np.zeros(count, np.bool_)
    mask[nodes] = True
    return mask

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
from veilcast.lab.attack import pruning
from veilcast.lab.kernels.chance import below, stream
from veilcast.lab.kernels.epochs import Conduct, Epoch, Population, epochs, settle
from veilcast.lab.kernels.insiders import delays
from veilcast.lab.measure import anonymity, calibration, definitions, ranking
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.sweep.params import Measure, Params
from veilcast.lab.sweep.scenes import scene


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    params.heed("runs of one insider who prunes", "pruner")
    people = settle(*scene(params, seed, data), 0.0, 0.0, seed)
    epoch = next(epochs(people, Conduct(), 1))
    readers = people.subscribers[epoch.mesh.distance[people.subscribers] > 0]
    if not readers.size:
        raise ConfigError("where no subscriber is reached there is nothing to prune")
    learnt = (_readers if params.pruner == "publisher" else _publisher)(people, epoch, readers)
    return [Measure(attack, name, 0, value) for attack, found in learnt.items() for name, value in found.items()]


def _readers(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """What a publisher makes of who subscribes with it."""
    graph, insider = people.graph, people.publisher
    beside = graph.neighbours(insider)
    asked, delay = epoch.mesh.parent[beside] == insider, delays(epoch)[beside]
    rate = people.subscribers.size / (graph.nodes - 1)
    subscribes = _mask(people.subscribers, graph.nodes)
    others = np.arange(graph.nodes) != insider
    branches = _branches(people, epoch, readers)
    promised = _children(epoch)[readers] + 1
    seed = int(stream(people.seed, "calibration")[0])
    found = {"": {"branch_mean": float(branches.mean()), "branch_min": float(branches.min())}}
    for attack, when in (("pruning", None), ("pruning-timed", delay)):
        said = pruning.subscribers(graph, insider, asked, rate, when)
        guess, positive = said[others], subscribes[others]
        # The papers' insider holds all of a branch for equally suspect; with a clock it does not.
        suspects = branches if when is None else np.count_nonzero(guess >= said[readers][:, None], axis=1)
        honest = calibration.of_probabilities(guess, positive, seed, draws=20)
        found[attack] = ranking.of_ranks(guess, positive)
        found[attack] |= anonymity.of_sets(anonymity.sizes(guess, positive))
        found[attack] |= {
            "base": rate,
            "below_promise": float(np.mean(suspects < promised)),
            "first_right": definitions.topic_subscriber(said, subscribes, others).probability,
            "calibration": honest.error,
            "calibration_floor": honest.floor,
        }
    return found


def _publisher(people: Population, epoch: Epoch, readers: NDArray[np.int32]) -> dict[str, dict[str, float]]:
    """What one of its subscribers makes of the adverts that it gets."""
    graph, publisher, distance = people.graph, people.publisher, epoch.mesh.distance
    insider = int(readers[below(stream(people.seed, "pruner"), readers.size)])
    beside = graph.neighbours(insider)
    honest = np.arange(graph.nodes) != insider
    promised = int(_children(epoch)[publisher]) + 1
    guesses = {
        "pruning": pruning.branch(graph, insider, int(np.searchsorted(beside, epoch.mesh.parent[insider]))),
        "pruning-chains": pruning.nearest(graph, insider, distance[beside] == distance[insider] - 1),
    }
    found = {}
    for attack, said in guesses.items():
        size = int(np.count_nonzero(said))
        named = definitions.publisher(said, publisher, honest)
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
    _, ways = pruning.entrances(people.graph, people.publisher)
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

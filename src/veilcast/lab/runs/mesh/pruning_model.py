"""Runs of one insider that prunes branches: the anonymity sets that P0 and P1 promise, beside those that remain.

As the publisher, the insider looks for readers: first as in the papers ("pruning"), then also by the time at which
branches answer ("pruning-timed"). P0 promises a reader a set of |N-| + 1, its children and itself; P1 promises its
whole branch. As a subscriber, the insider looks for the publisher: by the neighbour that told first ("pruning"), or by
all neighbours with the nearest chain values ("pruning-chains"). P0 promises |N+| + 1, "his predecessors in the mesh
plus himself". By P0's Eq. 2 a sole publisher has no predecessors, and the promise is empty; it is compared here with
the number of direct subscribers of the publisher.

Subscribers that no advert reaches are in no branch: the sets are those of the others.

The insider is a coalition of one: the run writes what it saw on its links, and the attackers of a lone insider guess
from that (`attack.insider.coalition_job`). The truth has the size of each subscriber's branch, and of the set that it
was promised, as the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX, advance_chain
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.insider import lone_insider
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.mesh_params import MeshPruning
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure import anonymity, definitions, information, ranking
from veilcast.lab.models.coalition_view import insiders_table, subscription_delays
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs, settle_population
from veilcast.lab.models.rng import draw_below, stream
from veilcast.lab.runs.mesh.epoch_tables import EPOCH_US, HOP_US, RUN, node_names
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay

Nodes = NDArray[np.int32]


def run(
    params: MeshPruning, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    people = settle_population(*draw_overlay(params, seed, data), 0.0, 0.0, seed)
    epoch = next(run_epochs(people, MeshPolicy(), 1))
    readers = people.subscribers[epoch.mesh.distance[people.subscribers] > 0]
    if not readers.size:
        raise ConfigError("where no subscriber is reached there is nothing to prune")
    publishes = params.pruner == "publisher"
    insider = people.publisher
    if not publishes:
        insider = int(readers[draw_below(stream(people.seed, "pruner"), readers.size)])
    observed, truth = _observe(people, epoch, insider, publishes), _tabulate_truth(people, epoch, readers, insider)
    guesses = attack_tables(observed, params, (), data)
    record_tables(recorder, observed | {"truth": truth, "guesses": guesses})
    return measure_guesses(guesses, truth, params, (), seed)


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshPruning, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of both that look for what the insider is not."""
    publishes = params.pruner == "publisher"
    asked = names or (_ON_READERS if publishes else _ON_PUBLISHER)
    return guess_from_coalition(observed, asked, [1], roles=[SUBSCRIBER if publishes else PUBLISHER])


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: MeshPruning, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attackers, or of all."""
    found: dict[str, dict[str, float]] = {}
    if params.pruner == "publisher":
        branch = _sizes(truth, "branch")
        sizes = np.array([*branch.values()], np.int64)
        found[""] = {"branch_mean": float(sizes.mean()), "branch_min": float(sizes.min())}
    for attack in pc.unique(guesses["attack"]).to_pylist():
        own = guesses.filter(pc.equal(guesses["attack"], attack))
        measure = _measure_readers if params.pruner == "publisher" else _measure_publisher
        found[attack] = measure(own["node"].to_pylist(), own["score"].to_numpy(), truth, attack, seed)
    return [
        Measure(attack, metric, 0, value)
        for attack, values in found.items()
        if not names or attack in names
        for metric, value in values.items()
    ]


def _measure_readers(
    nodes: list[str], guess: NDArray[np.float64], truth: pa.Table, attack: str, seed: int
) -> dict[str, float]:
    """The publisher's inference from the neighbours that subscribe."""
    positive = np.isin(nodes, truth.filter(pc.equal(truth["role"], "subscriber"))["node"].to_pylist())
    branch, promise = _sizes(truth, "branch"), _sizes(truth, "promise")
    place = {name: at for at, name in enumerate(nodes)}
    readers = np.array([place[name] for name in branch])
    # The papers' insider suspects all nodes of a branch equally; with a clock it does not.
    branches = np.array([*branch.values()])
    timed = np.count_nonzero(guess >= guess[readers][:, None], axis=1)
    suspects = timed if attack == "pruning-timed" else branches
    honest = information.measure_calibration(guess, positive, int(stream(seed, "calibration")[0]), draws=20)
    everybody = np.ones(len(nodes), np.bool_)
    found = ranking.measure_ranking(guess, positive)
    found |= anonymity.summarise_sets(anonymity.anonymity_set_sizes(guess, positive))
    return found | {
        "base": int(np.count_nonzero(positive)) / len(nodes),
        "below_promise": float(np.mean(suspects < np.array([promise[name] for name in branch]))),
        "first_right": definitions.measure_topic_subscriber(guess, positive, everybody).probability,
        "calibration": honest.error,
        "calibration_floor": honest.floor,
    }


def _measure_publisher(
    nodes: list[str], guess: NDArray[np.float64], truth: pa.Table, attack: str, seed: int
) -> dict[str, float]:
    """A subscriber's inference from the adverts that it receives."""
    [publisher] = truth.filter(pc.equal(truth["role"], "publisher"))["node"].to_pylist()
    size = int(np.count_nonzero(guess > np.log(lone_insider.MISTAKEN)))
    named = definitions.measure_publisher(guess, nodes.index(publisher), np.ones(len(nodes), np.bool_))
    return {
        "set": float(size),
        "success": named.probability,
        "base": named.bound,
        "below_promise": float(size < _sizes(truth, "promise")[publisher]),
    }


def _sizes(truth: pa.Table, role: str) -> dict[str, int]:
    """The numbers that stand in the place of a topic, by node."""
    rows = truth.filter(pc.equal(truth["role"], role))
    return dict(zip(rows["node"].to_pylist(), map(int, rows["topic"].to_pylist()), strict=True))


def _observe(people: Population, epoch: Epoch, insider: int, publishes: bool) -> dict[str, pa.Table]:
    """What the insider knows and saw. Only a publisher knows where the flood begins."""
    graph = people.graph
    names = pa.array(node_names(graph.nodes))
    u, v = (names.take(pa.array(ends)) for ends in graph.edges())
    facts = {"acting": people.subscribers.size / (graph.nodes - 1), "hop_us": float(HOP_US)}
    found = {
        "topology": tables.from_columns("topology", run=RUN, epoch=0, u=u, v=v),
        "presence": tables.from_columns("presence", run=RUN, epoch=0, node=names),
        "facts": tables.from_columns("facts", run=RUN, name=[*facts], value=[*facts.values()]),
        "insiders": (_hear_requests if publishes else _hear_adverts)(people, epoch, insider, names),
    }
    if publishes:
        found["roots"] = tables.from_columns("roots", run=RUN, topic="", epoch=0, node=names.take(pa.array([insider])))
    return found


def _hear_requests(people: Population, epoch: Epoch, insider: int, names: pa.Array) -> pa.Table:
    """The insider's own advert, and the requests of the neighbours behind which there is a subscriber."""
    beside = people.graph.neighbours(insider)
    asks = beside[epoch.mesh.parent[beside] == insider]
    wait_us = np.maximum(subscription_delays(epoch)[asks], 0).astype(np.int64) * HOP_US
    return pa.concat_tables(
        [
            _rows(names, insider, beside, np.zeros(beside.size, np.int64), "out:Advert"),
            _rows(names, insider, asks, wait_us, "in:Subscribe"),
        ]
    )


def _hear_adverts(people: Population, epoch: Epoch, insider: int, names: pa.Array) -> pa.Table:
    """The adverts of all neighbours, with their chain values. Of the nearest ones the parent's comes first."""
    beside, distance = people.graph.neighbours(insider), epoch.mesh.distance
    peers = beside[distance[beside] >= 0]
    start = int(stream(people.seed, "chain")[0]).to_bytes(32, "big")
    chains = [advance_chain(start, min(hops, LENGTH_MAX)) for hops in distance[peers].tolist()]
    at_us = distance[peers].astype(np.int64) * HOP_US + (peers != epoch.mesh.parent[insider])
    return _rows(names, insider, peers, at_us, "in:Advert", message=b"0", chain=chains)


def _rows(names: pa.Array, insider: int, peers: Nodes, after_us: NDArray[np.int64], kind: str, **more: Any) -> pa.Table:
    epoch, observer = np.zeros(peers.size, np.int64), np.full(peers.size, insider)
    return insiders_table(
        RUN,
        names,
        b"token",
        start_us=0,
        epoch_us=EPOCH_US,
        epoch=epoch,
        after_us=after_us,
        observer=observer,
        peer=peers,
        kind=kind,
        **more,
    )


def _tabulate_truth(people: Population, epoch: Epoch, readers: Nodes, insider: int) -> pa.Table:
    names = pa.array(node_names(people.graph.nodes))
    offsets, _ = epoch.mesh.children
    # For each node, |N-| + 1: the nodes that it forwards to, and itself. Of the publisher, its direct subscribers.
    promise = np.diff(offsets) + 1
    publisher = np.array([people.publisher])
    roles: list[tuple[str, NDArray[Any], list[str]]] = [
        ("subscriber", people.subscribers, [""] * people.subscribers.size),
        ("publisher", publisher, [""]),
        ("insider", np.array([insider]), [""]),
        ("promise", readers, [str(size) for size in promise[readers].tolist()]),
        ("promise", publisher, [str(size) for size in promise[publisher].tolist()]),
    ]
    if insider == people.publisher:
        roles.append(("branch", readers, [str(size) for size in _branches(people, epoch, readers).tolist()]))
    return pa.concat_tables(
        [
            tables.from_columns(
                "truth", run=RUN, topic=topic, node=names.take(pa.array(who)), role=role, since_us=0, until_us=EPOCH_US
            )
            for role, who, topic in roles
        ]
    )


def _branches(people: Population, epoch: Epoch, readers: Nodes) -> NDArray[np.int64]:
    """For each reader, the number of nodes that the publisher cannot tell from it, by P1: nodes whose paths can arrive
    at the same neighbour of the publisher."""
    _, ways = lone_insider.find_branches(people.graph, people.publisher)
    size = np.count_nonzero(ways, axis=0)
    entrance = np.searchsorted(people.graph.neighbours(people.publisher), _entrances(people, epoch, readers))
    found: NDArray[np.int64] = size[entrance]
    return found


def _entrances(people: Population, epoch: Epoch, readers: Nodes) -> Nodes:
    """For each reader, the neighbour of the publisher at which its subscription arrived."""
    at, parent = readers.copy(), epoch.mesh.parent
    while (further := parent[at] != people.publisher).any():
        at[further] = parent[at[further]]
    return at


_ON_READERS: Final = ("pruning", "pruning-timed")
_ON_PUBLISHER: Final = ("pruning", "pruning-chains")

"""A lone insider on tables, as a publisher or a subscriber: it gives the results of arrays and finds its targets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from support.coalition_view import tells_nothing_of_shuffled_labels
from support.small_population import make_population
from veilcast.crypto.hash_chain import advance_chain
from veilcast.lab import tables
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.insider import lone_insider
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.coalition_view import subscription_delays
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.observe import FactRow, InsiderRow, ObservationRow, PresenceRow, TopologyRow

NODES, WORLDS, HOP_US, EPOCH_US = 120, 6, 1_000, 1_000_000
NAMES = [f"n{number:03}" for number in range(NODES)]
Guessed = dict[tuple[str, str, str], NDArray[np.float64]]
"""By run, attack and role, the score of each node; none for the insider."""


@cache
def world(number: int) -> tuple[Population, Epoch]:
    people = make_population(NODES, 8, 0.0, 0.0, 40 + number)
    return people, next(run_epochs(people, MeshPolicy(), 1))


def publishing(number: int) -> list[ObservationRow]:
    """Rows of a publishing insider: its adverts, and the subscriptions that it receives."""
    people, epoch = world(number)
    me = people.publisher
    run, beside, when = f"publisher {number}", people.graph.neighbours(me), subscription_delays(epoch)
    found: list[ObservationRow] = [
        InsiderRow(run, 0, 0, NAMES[me], NAMES[peer], "out:Advert", b"a", b"t", b"", "") for peer in beside
    ]
    found += [
        InsiderRow(run, 0, int(when[peer]) * HOP_US, NAMES[me], NAMES[peer], "in:Subscribe", b"", b"t", b"", "")
        for peer in beside
        if epoch.mesh.parent[peer] == me
    ]
    return found + overlay(run, people)


def subscribing(number: int) -> list[ObservationRow]:
    """Rows of a subscribing insider: adverts from all of its neighbours, with their chain values."""
    people, epoch = world(number)
    me, far = insider(number), epoch.mesh.distance
    run, first = f"subscriber {number}", int(epoch.mesh.parent[me])
    found: list[ObservationRow] = [
        InsiderRow(run, 0, int(peer != first), NAMES[me], NAMES[peer], "in:Advert", b"a", b"t", chain(far[peer]), "")
        for peer in people.graph.neighbours(me)
    ]
    return found + overlay(run, people)


def insider(number: int) -> int:
    """Further out than who has the publisher beside it."""
    people, epoch = world(number)
    return int(people.subscribers[np.argmax(epoch.mesh.distance[people.subscribers])])


def chain(hops: int) -> bytes:
    return advance_chain(bytes(32), int(hops))


def overlay(run: str, people: Population) -> list[ObservationRow]:
    links: list[ObservationRow] = [
        TopologyRow(run, 0, NAMES[u], NAMES[v]) for u, v in zip(*people.graph.edges(), strict=True)
    ]
    return links + [PresenceRow(run, 0, name) for name in NAMES]


@pytest.fixture(scope="module")
def guessed() -> Guessed:
    found = [row for number in range(WORLDS) for row in (*publishing(number), *subscribing(number))]
    found += [InsiderRow("two", 0, 0, NAMES[me], NAMES[2], "in:Advert", b"a", b"t", b"", "") for me in (0, 1)]
    found += overlay("two", world(0)[0])
    found += [FactRow(run, "hop_us", HOP_US) for run in {row.run for row in found}]
    given = {
        tables.TABLE_OF[kind]: tables.from_rows(kind, [row for row in found if isinstance(row, kind)])
        for kind in (InsiderRow, TopologyRow, PresenceRow, FactRow)
    }
    answer: pa.Table = guess_from_coalition(given, ("pruning", "pruning-timed", "pruning-chains", "first-spy"), (1,))
    scores: Guessed = {}
    for row in answer.to_pylist():
        key = (row["run"], row["attack"], row["role"])
        scores.setdefault(key, np.full(NODES, np.nan))[NAMES.index(row["node"])] = row["score"]
    return scores


@pytest.mark.parametrize("number", range(WORLDS))
def test_tables_give_the_results_of_arrays(guessed: Guessed, number: int) -> None:
    people, epoch = world(number)
    me, other = people.publisher, insider(number)
    beside = people.graph.neighbours(me)
    asked, delay = epoch.mesh.parent[beside] == me, subscription_delays(epoch)[beside]
    others, far = np.arange(NODES) != me, epoch.mesh.distance
    for attack, when in (("pruning", None), ("pruning-timed", delay)):
        wanted = lone_insider.score_branch_subscribers(people.graph, me, asked, 0.1, when)
        assert guessed[f"publisher {number}", attack, "subscriber"][others] == pytest.approx(wanted[others])
    near = people.graph.neighbours(other)
    wide = lone_insider.score_first_branch(people.graph, other, int(np.searchsorted(near, epoch.mesh.parent[other])))
    sharp = lone_insider.score_nearest_branches(people.graph, other, far[near] == far[near].min())
    for attack, wanted in (("pruning", wide), ("pruning-chains", sharp)):
        found = guessed[f"subscriber {number}", attack, "publisher"]
        assert np.delete(np.exp(found), other) == pytest.approx(np.delete(wanted, other), abs=2e-6)


def test_subscribers_are_found_better_by_timing_and_shuffled_ones_are_not(guessed: Guessed) -> None:
    """Both controls, where the insider publishes."""
    areas: dict[str, list[float]] = {"pruning": [], "pruning-timed": []}
    for number in range(WORLDS):
        people, _ = world(number)
        labels = np.isin(np.arange(NODES), people.subscribers)
        for attack, found in areas.items():
            scores, others = guessed[f"publisher {number}", attack, "subscriber"], np.arange(NODES) != people.publisher
            found.append(auc(scores[others], labels[others]))
            assert tells_nothing_of_shuffled_labels(scores[others], labels[others])
    assert 0.55 < np.mean(areas["pruning"]) < 0.7 < np.mean(areas["pruning-timed"])


def test_the_publisher_is_among_the_most_suspect_and_neighbours_of_the_insider_are_not(guessed: Guessed) -> None:
    for number in range(WORLDS):
        people, epoch = world(number)
        found = guessed[f"subscriber {number}", "pruning-chains", "publisher"]
        assert found[people.publisher] == np.nanmax(found)
        assert (
            distances_from(people.graph, insider(number))[people.publisher] == epoch.mesh.distance[insider(number)] > 1
        )


def test_a_coalition_of_several_does_not_prune(guessed: Guessed) -> None:
    assert {attack for run, attack, _ in guessed if run == "two"} == {"first-spy"}

"""Stems and presence together: far more than each alone, unless notes leave seldom and are held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from support.advert_floods import first_guess_success
from support.small_population import make_population
from veilcast.lab.attack.insider import publisher_evidence
from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs
from veilcast.lab.models.epochs import MESH_POLICIES, Population, settle_population
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.link_observations import LinkObservations

# Of six in a ring, 0 is hostile and has it from 1; the root is 5.
RING = from_edges(6, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])


def seen(present: NDArray[np.bool_], root: int = 5) -> LinkObservations:
    count, nothing = len(present), np.empty((len(present), 0))
    nobody = np.empty(0, np.int32)
    return LinkObservations(
        np.array([0], np.int32),
        nobody,
        np.full(count, root, np.int32),
        present,
        nothing.astype(np.int8),
        nothing.astype(np.int16),
        np.empty((0, 6), np.int32),
    )


def named(graph: Graph, present: NDArray[np.bool_], passed: Sequence[tuple[int, ...]], read: list[int]) -> int:
    rows = np.array(passed, np.int32).reshape(-1, 5)
    return int(
        publisher_evidence.score_stems_and_presence(
            graph, seen(present), rows, np.array(read, np.int32), onward=0.5
        ).argmax()
    )


def test_a_hostile_successor_knows_the_publisher() -> None:
    there = np.ones((8, 6), np.bool_)
    assert named(RING, there, [(epoch, 0, 1, 5, 0) for epoch in range(8)], [1] * 8) == 1


def test_presence_clears_the_predecessor_and_leads_to_the_one_behind_it() -> None:
    """Node 1 is the predecessor, but notifications came only while 2 and 3 were present."""
    there = np.ones((12, 6), np.bool_)
    there[::3, 3] = there[1::6, 2] = False
    passed = [(epoch, 0, 1, 5, 0) for epoch in range(12) if there[epoch, 2] and there[epoch, 3]]
    read = [int(there[epoch, 2] and there[epoch, 3]) for epoch in range(12)]
    assert named(RING, there, passed, read) == 3


def test_without_observations_no_node_stands_out() -> None:
    there = np.ones((5, 6), np.bool_)
    found = publisher_evidence.score_stems_and_presence(
        RING, seen(there), np.empty((0, 5), np.int32), np.zeros(5, np.int32), onward=0.5
    )
    assert found[1:] == pytest.approx(found[1], abs=0.75)


def rates(departures: int, hold: int, worlds: int, *, shuffled: bool = False) -> dict[str, float]:
    """How often each attacker's first guess is right; a tenth are insiders, and the publisher comes and goes."""
    hits: dict[str, list[float]] = {"predecessor": [], "presence": [], "sender": []}
    for seed in range(worlds):
        plain = make_population(500, 8, 0.1, 0.1, 900 + seed)
        people = settle_population(plain.graph, plain.publisher, plain.subscribers, 0.1, 0.1, plain.seed, steady=False)
        view = watch_epochs(people, replace(MESH_POLICIES["H"], departures=departures, hold=hold), 50)
        if shuffled:
            view = _shuffled(view, people, seed)
        far = origin_distances(people.graph, view)
        walked = publisher_evidence.score_stems(people.graph, view.stem_passages, people.insiders, far, 0.5, kept=True)
        there = publisher_evidence.score_presence(view.present, view.delivered > 0, hold)
        both = publisher_evidence.score_stems_and_presence(
            people.graph, view, view.stem_passages, view.delivered, onward=0.5, departures=departures, hold=hold
        )
        for name, scores in (("predecessor", walked), ("presence", there), ("sender", both)):
            hits[name].append(first_guess_success(scores, people))
    return {name: float(np.mean(values)) for name, values in hits.items()}


def _shuffled(view: CoalitionView, people: Population, seed: int) -> CoalitionView:
    """Stems of others, and presence of others."""
    rng, honest = np.random.default_rng(seed), np.flatnonzero(~people.insiders)
    mixed = np.arange(people.graph.nodes)
    mixed[honest] = rng.permutation(honest)
    passed = view.stem_passages.copy()
    passed[:, 2] = mixed[passed[:, 2]]
    return replace(view, stem_passages=passed, present=view.present[:, mixed])


def test_together_they_name_publishers_whose_notes_leave_at_once() -> None:
    """The positive control."""
    found = rates(0, 0, 24)
    assert found["sender"] > 0.6
    assert found["sender"] > found["presence"] > found["predecessor"]


def test_hold_back_alone_does_not_help_against_insiders_on_stems_and_departures_do() -> None:
    held, seldom = rates(0, 5, 24), rates(20, 5, 24)
    assert held["sender"] > 0.2 > held["presence"]
    assert seldom["sender"] < 0.25


def test_stems_and_presence_of_another_run_name_no_publisher() -> None:
    """The null control."""
    assert rates(0, 0, 24, shuffled=True)["sender"] < 0.06

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.advert_floods import first_guess_success
from support.coalition_view import make_case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.insider.publisher_evidence import score_behind_successor, score_presence, score_successors
from veilcast.lab.models import hardened_mesh
from veilcast.lab.models.epochs import MESH_POLICIES, MeshPolicy, run_epochs
from veilcast.lab.models.graph import from_edges
from veilcast.lab.models.keyed_draws import derive_key


def rank(scores: NDArray[np.float64], node: int, among: NDArray[np.bool_]) -> float:
    """How many of these come before it, ties counting half."""
    others = scores[among]
    return float(np.count_nonzero(others > scores[node]) + (np.count_nonzero(others == scores[node]) - 1) / 2)


def median_rank(count: int, held: int) -> float:
    """Of publishers who have a note in every epoch in which they are there, and a root that holds it back."""
    ranks = []
    for seed in range(40):
        world = make_case(MeshPolicy(), 700 + seed, count + held)
        rng, publisher = np.random.default_rng(seed), world.people.publisher
        present, published = world.view.present.copy(), np.zeros(count + held, np.bool_)
        if held:
            present[:, publisher] = rng.random(count + held) < 0.9
        written = np.flatnonzero(present[:count, publisher])
        published[written + rng.integers(0, held + 1, written.size)] = True
        ranks.append(rank(score_presence(present, published, held), publisher, ~world.people.insiders))
    return float(np.median(ranks))


def test_candidates_shrink_by_a_tenth_with_each_publication() -> None:
    """The positive control: the prototype has ranks of 202, 135, 28 and 2 of 450."""
    assert [median_rank(count, 0) for count in (1, 5, 20, 50)] == pytest.approx([202, 133, 27, 2], abs=12)


def test_notes_that_are_held_back_hide_it() -> None:
    assert median_rank(50, 20) > 100


def test_shuffled_labels_are_not_found() -> None:
    world = make_case("BL", 1, 20)
    found = score_presence(world.view.present, np.ones(20, np.bool_))
    assert tells_nothing_of_shuffled_labels(found[world.candidates], world.labels())


def test_a_publisher_is_silent_while_its_successor_is_absent() -> None:
    present = np.array([[True, True, True], [True, False, True], [True, True, False]])
    found = score_successors(present, np.array([True, False, True]))
    assert found.argmax() == 1
    # 1 has the neighbours 0 and 2, of whom 2 has another one.
    guess = score_behind_successor(from_edges(4, [0, 1, 2], [1, 2, 3]), np.append(found, -50.0))
    assert guess[0] > guess[2] > guess[1]


def test_the_hardened_mesh_waits_and_so_shows_its_publishers_successor() -> None:
    """One of the successor's neighbours is named, so about one in eight is right, without any insider on the stem."""
    hits, found = [], []
    for seed in range(40):
        world = make_case("H", 800 + seed, 50)
        people, key = world.people, derive_key(world.people.seed, "life")
        ways = [
            hardened_mesh.walk_stem(
                people.graph, epoch.graph, epoch.root_paths, people.publisher, hardened_mesh.ONWARD_PROBABILITY, key
            )
            for epoch in run_epochs(people, MESH_POLICIES["H"], 50)
        ]
        published = np.array([way is not None for way in ways])
        guess = score_successors(world.view.present, published)
        successor = next(int(way.path[1]) for way in ways if way is not None)
        if not people.insiders[successor]:
            found.append(rank(guess, successor, ~people.insiders) < 1)
            hits.append(first_guess_success(score_behind_successor(people.graph, guess), people))
    assert np.mean(found) > 0.85
    assert 0.05 < np.mean(hits) < 0.35

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.advert_floods import first_guess_success
from support.coalition_view import make_case
from support.small_population import make_population
from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.attack.insider.publisher_evidence import score_stems
from veilcast.lab.models import hardened_mesh
from veilcast.lab.models.epochs import Population
from veilcast.lab.models.graph import from_edges
from veilcast.lab.models.keyed_draws import derive_key

# Of six in a ring, 0 is hostile and has it from 1; the root is 5.
RING = from_edges(6, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])
ENEMY = np.arange(6) == 0
FAR = np.array([[1, 2, 3, 2, 1, 0]] * 2, np.int32)


def test_the_predecessor_is_likelier_than_those_behind_it() -> None:
    found = score_stems(RING, np.array([[0, 0, 1, 5, 0]], np.int32), ENEMY, FAR, 0.5, kept=True)
    assert found[1] > found[2] > found[3] > found[4]
    climbing = score_stems(RING, np.array([[0, 0, 1, 5, 1]], np.int32), ENEMY, FAR, 0.5, kept=True)
    assert climbing[2] > climbing[1]  # Nobody is the end of its own stem, but by a loop.


def test_the_same_step_counts_once_where_choices_are_kept_and_each_time_where_they_are_not() -> None:
    once, twice = np.array([[0, 0, 1, 5, 0]], np.int32), np.array([[0, 0, 1, 5, 0], [1, 0, 1, 5, 0]], np.int32)
    one = score_stems(RING, once, ENEMY, FAR, 0.5, kept=True)
    assert (score_stems(RING, twice, ENEMY, FAR, 0.5, kept=True) == one).all()
    assert score_stems(RING, twice, ENEMY, FAR, 0.5, kept=False) == pytest.approx(2 * one)


def test_only_the_first_insider_on_a_path_counts_and_without_any_no_node_is_named() -> None:
    rows = np.array([[0, 0, 1, 5, 0], [0, 0, 4, 5, 0]], np.int32)
    assert (
        score_stems(RING, rows, ENEMY, FAR, 0.5, kept=True) == score_stems(RING, rows[:1], ENEMY, FAR, 0.5, kept=True)
    ).all()
    assert not score_stems(RING, rows[:0], ENEMY, FAR, 0.5, kept=True).any()


def passages(people: Population, epochs: int, *, fresh: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Stems of `count` notifications, with choices kept or drawn for each, and distances; all nodes are present."""
    life = derive_key(people.seed, "life")
    found = hardened_mesh.find_root_paths(
        people.graph, hardened_mesh.elect_root(~people.insiders, life), np.zeros(people.graph.targets.size, np.uint64)
    )
    rows = []
    for epoch in range(epochs):
        key = derive_key(people.seed, "stem", epoch) if fresh else life
        way = hardened_mesh.walk_stem(people.graph, people.graph, found, people.publisher, 0.9, key)
        assert way is not None
        for place, node in enumerate(way.path[1:], 1):
            if people.insiders[node]:
                rows.append((epoch, node, way.path[place - 1], node, place > way.climb_start))
    return np.array(rows, np.int32).reshape(-1, 5), np.tile(found.distance, (epochs, 1))


def test_fresh_stems_betray_the_publisher_in_the_end_and_kept_ones_do_not() -> None:
    """The positive control. The prototype has .96 after 50 notes with fresh successors and .13 with kept ones; but the
    flood began at the stem's end there, and was trilaterated too."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(40):
        people = make_population(500, 8, 0.1, 0.0, seed)
        for fresh, hits in rates.items():
            rows, far = passages(people, 50, fresh=fresh)
            hits.append(
                first_guess_success(score_stems(people.graph, rows, people.insiders, far, 0.9, kept=not fresh), people)
            )
    assert np.mean(rates[True]) > 0.65
    assert np.mean(rates[False]) < 0.25


def test_neither_the_hardened_mesh_nor_shuffled_predecessors_betray_it() -> None:
    """The second is the null control."""
    hits, shuffled = [], []
    for seed in range(60):
        world = make_case("H", 600 + seed, 20)
        people = world.people
        rows, far = world.view.stem_passages, origin_distances(people.graph, world.view)
        hits.append(first_guess_success(score_stems(people.graph, rows, people.insiders, far, 0.5, kept=True), people))
        rows = rows.copy()
        honest = np.flatnonzero(~people.insiders)
        mixed = np.arange(500)
        mixed[honest] = np.random.default_rng(seed).permutation(honest)
        rows[:, 2] = mixed[rows[:, 2]]
        shuffled.append(
            first_guess_success(score_stems(people.graph, rows, people.insiders, far, 0.5, kept=True), people)
        )
    assert np.mean(hits) < 0.2
    assert np.mean(shuffled) < 0.05

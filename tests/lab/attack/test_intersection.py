from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from support.watched_meshes import NODES, Mask, expect_nothing, mask
from veilcast.errors import ConfigError
from veilcast.lab.attack.observer.disclosure import find_hitting_sets, remaining_candidates, score_hitting_sets
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import build_mesh, draw_roles


@given(arrays.arrays(np.bool_, st.tuples(st.integers(1, 6), st.just(6))), st.integers(1, 3))
def test_hitting_sets_are_all_minimal_sets_that_meet_every_round(rounds: Mask, size: int) -> None:
    def hits(chosen: tuple[int, ...]) -> bool:
        return bool(rounds[:, list(chosen)].any(axis=1).all())

    every = [chosen for many in range(size + 1) for chosen in combinations(range(6), many) if hits(chosen)]
    assert find_hitting_sets(rounds, size) == sorted(
        chosen for chosen in every if not any(set(other) < set(chosen) for other in every)
    )


def test_meshes_of_new_publishers_leave_only_subscribers_in_the_end() -> None:
    """The positive control, and with it the null control."""
    graph = small_world(NODES, 4, 0.2, 1)
    _, subscribers = draw_roles(graph, 0.1, 1)
    roots = np.random.default_rng(1).choice(np.setdiff1d(np.arange(NODES), subscribers), 20, replace=False)
    rounds = np.array(
        [mask(build_mesh(graph, int(root), subscribers, seed).members) for seed, root in enumerate(roots)]
    )
    left, readers = remaining_candidates(rounds), mask(subscribers)
    assert left[:, subscribers].all()
    assert np.flatnonzero(left[-1]).tolist() == subscribers.tolist()
    assert 60 < np.count_nonzero(left[1]) < np.count_nonzero(left[0])
    expect_nothing(left.sum(axis=0).astype(np.float64), readers)


def test_alternating_publishers_are_found_as_a_hitting_set() -> None:
    rng, sought = np.random.default_rng(2), [7, 30]
    rounds = rng.random((40, 60)) < 0.3
    rounds[np.arange(40), rng.choice(sought, 40)] = True
    assert not remaining_candidates(rounds)[-1].any()
    found = score_hitting_sets(rounds, 2)
    assert np.flatnonzero(found).tolist() == sought
    assert 0 < score_hitting_sets(rounds[:8], 2)[7] < 1
    expect_nothing(score_hitting_sets(rounds[:8], 2), mask(sought, 60))


def test_without_a_small_hitting_set_no_node_is_named() -> None:
    assert score_hitting_sets(np.eye(4, dtype=np.bool_), 3).tolist() == [0, 0, 0, 0]
    assert score_hitting_sets(np.eye(4, dtype=np.bool_), 4).tolist() == [1, 1, 1, 1]


def test_an_endless_search_is_refused() -> None:
    with pytest.raises(ConfigError, match="smaller rounds"):
        find_hitting_sets(np.tile(np.eye(20, dtype=np.bool_), (1, 12)), 6)

from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import expect_nothing, grow_mesh, mask
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import from_edges


def test_a_member_that_stays_without_children_subscribes_and_one_that_left_with_others_did_not() -> None:
    """On the path 0-1-2-3-4 the readers are 2 and 4; then 4 leaves, and 3, which it alone needed."""
    path = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    looks = np.array([mask(range(5), 5), mask([0, 1, 2], 5)])
    assert closure.score_survivors(path, looks, distances_from(path, 0), 0.1).tolist() == pytest.approx(
        [0, 0.1, 1, 0.1, 1]
    )


def test_prunings_tell_more_than_the_mesh_did() -> None:
    """The positive control; and the null control beside it."""
    whole, pruned = [], []
    for seed in range(20):
        seen = grow_mesh(seed, range(50, 9, -1))
        distance = distances_from(seen.graph, seen.publisher)
        asked, readers = seen.looks[0] & ~mask([seen.publisher]), mask(seen.order)
        whole.append(auc(closure.score_closure(seen.graph, seen.looks[0], distance, 0.1)[asked], readers[asked]))
        scores = closure.score_survivors(seen.graph, seen.looks, distance, 0.1)[asked]
        pruned.append(auc(scores, readers[asked]))
        if seed < 3:
            expect_nothing(scores, readers[asked])
    assert np.mean(pruned) > np.mean(whole) + 0.03


def test_with_one_look_it_is_closure() -> None:
    seen = grow_mesh(1, [50])
    distance = distances_from(seen.graph, seen.publisher)
    expected = closure.score_closure(seen.graph, seen.looks[0], distance, 0.1)
    assert closure.score_survivors(seen.graph, seen.looks, distance, 0.1).tolist() == expected.tolist()

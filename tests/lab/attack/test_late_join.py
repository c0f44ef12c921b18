from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import expect_nothing, grow_mesh, mask
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import from_edges


def test_the_outer_end_of_a_new_path_subscribes() -> None:
    path = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    before, after, distance = mask([0, 1], 5), mask([0, 1, 2, 3], 5), distances_from(path, 0)
    assert np.flatnonzero(closure.find_certain_joiners(path, before, after, distance)).tolist() == [3]
    assert closure.score_late_join(path, before, after, distance, 0.1).tolist() == pytest.approx([0, 0, 0.1, 1, 0])


def test_a_single_joiner_is_named_with_certainty_if_it_is_seen() -> None:
    """The positive control."""
    named = 0
    for seed in range(100):
        seen = grow_mesh(seed, [49, 50])
        before, after = seen.looks
        distance = distances_from(seen.graph, seen.publisher)
        found = np.flatnonzero(closure.find_certain_joiners(seen.graph, before, after, distance)).tolist()
        assert found == ([] if before[seen.order[-1]] else [seen.order[-1]])
        named += len(found)
    assert named > 65


def test_joint_joiners_hide_one_another_a_little_and_shuffled_labels_are_not_found() -> None:
    areas = []
    for seed in range(20):
        seen = grow_mesh(seed, [25, 50])
        before, after = seen.looks
        came = after & ~before
        scores = closure.score_late_join(seen.graph, before, after, distances_from(seen.graph, seen.publisher), 0.1)[
            came
        ]
        readers = mask(seen.order[25:])[came]
        areas.append(auc(scores, readers))
        if seed < 3:
            expect_nothing(scores, readers)
    assert np.mean(areas) > 0.9

from __future__ import annotations

import numpy as np
import pytest

from support.watched import expect_nothing, growing, mask
from veilcast.lab.attack import late_join
from veilcast.lab.attack.hops import hops_from
from veilcast.lab.kernels.graph import from_edges
from veilcast.lab.measure.ranking import auc


def test_the_outer_end_of_a_new_way_reads() -> None:
    path = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    before, after, distance = mask([0, 1], 5), mask([0, 1, 2, 3], 5), hops_from(path, 0)
    assert np.flatnonzero(late_join.certain(path, before, after, distance)).tolist() == [3]
    assert late_join.scores(path, before, after, distance, 0.1).tolist() == pytest.approx([0, 0, 0.1, 1, 0])


def test_who_comes_alone_is_named_with_certainty_if_anybody_comes() -> None:
    """The positive control."""
    named = 0
    for seed in range(100):
        seen = growing(seed, [49, 50])
        before, after = seen.looks
        distance = hops_from(seen.graph, seen.publisher)
        found = np.flatnonzero(late_join.certain(seen.graph, before, after, distance)).tolist()
        assert found == ([] if before[seen.order[-1]] else [seen.order[-1]])
        named += len(found)
    assert named > 65


def test_many_at_once_hide_one_another_a_little_and_labels_that_are_shuffled_altogether() -> None:
    areas = []
    for seed in range(20):
        seen = growing(seed, [25, 50])
        before, after = seen.looks
        came = after & ~before
        scores = late_join.scores(seen.graph, before, after, hops_from(seen.graph, seen.publisher), 0.1)[came]
        readers = mask(seen.order[25:])[came]
        areas.append(auc(scores, readers))
        if seed < 3:
            expect_nothing(scores, readers)
    assert np.mean(areas) > 0.9

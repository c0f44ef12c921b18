from __future__ import annotations

import numpy as np
import pytest

from support.watched import expect_nothing, growing, mask
from veilcast.lab.attack import closure, survivor
from veilcast.lab.attack.hops import hops_from
from veilcast.lab.kernels.graph import from_edges
from veilcast.lab.measure.ranking import auc


def test_who_stays_without_anybody_below_it_reads_and_who_left_with_others_did_not() -> None:
    """On the path 0-1-2-3-4 the readers are 2 and 4; then 4 leaves, and 3, which it alone needed."""
    path = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    looks = np.array([mask(range(5), 5), mask([0, 1, 2], 5)])
    assert survivor.scores(path, looks, hops_from(path, 0), 0.1).tolist() == pytest.approx([0, 0.1, 1, 0.1, 1])


def test_prunings_tell_more_than_the_mesh_did() -> None:
    """The positive control; and the null control beside it."""
    whole, pruned = [], []
    for seed in range(20):
        seen = growing(seed, range(50, 9, -1))
        distance = hops_from(seen.graph, seen.publisher)
        asked, readers = seen.looks[0] & ~mask([seen.publisher]), mask(seen.order)
        whole.append(auc(closure.posterior(seen.graph, seen.looks[0], distance, 0.1)[asked], readers[asked]))
        scores = survivor.scores(seen.graph, seen.looks, distance, 0.1)[asked]
        pruned.append(auc(scores, readers[asked]))
        if seed < 3:
            expect_nothing(scores, readers[asked])
    assert np.mean(pruned) > np.mean(whole) + 0.03


def test_with_one_look_it_is_closure() -> None:
    seen = growing(1, [50])
    distance = hops_from(seen.graph, seen.publisher)
    expected = closure.posterior(seen.graph, seen.looks[0], distance, 0.1)
    assert survivor.scores(seen.graph, seen.looks, distance, 0.1).tolist() == expected.tolist()

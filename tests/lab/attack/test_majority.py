from __future__ import annotations

import numpy as np

from veilcast.lab.attack.observer.leaf_rule import find_leaves, name_majority

SRC = np.array([0, 1, 2, 2], dtype=np.int32)
DST = np.array([1, 2, 3, 4], dtype=np.int32)


def test_where_subscribers_dominate_every_receiver_is_named() -> None:
    assert name_majority(SRC, DST, 6, subscribers=3).tolist() == [False, True, True, True, True, False]


def test_with_half_of_the_mesh_or_less_it_is_the_leaf_rule() -> None:
    """The publisher counts as known: with five nodes, two and the publisher are more than half, one is not."""
    assert np.array_equal(name_majority(SRC, DST, 6, subscribers=1), find_leaves(SRC, DST, 6))
    assert not np.array_equal(name_majority(SRC, DST, 6, subscribers=2), find_leaves(SRC, DST, 6))


def test_without_observations_no_node_is_named() -> None:
    nothing = np.empty(0, dtype=np.int32)
    assert not name_majority(nothing, nothing, 6, subscribers=3).any()

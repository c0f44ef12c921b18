from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.attack.observer.leaf_rule import PersistentObserver, find_leaves
from veilcast.lab.measure.ranking import auc, auc_by_chance

PATH = [(0, 1), (1, 2), (0, 3)]
"""Publisher 0; 2 and 3 subscribe."""


def watch(*publications: list[tuple[int, int]], nodes: int = 8) -> PersistentObserver:
    persistence = PersistentObserver(nodes)
    for links in publications:
        array = np.array(links, dtype=np.int32)
        persistence.observe(array[:, 0], array[:, 1])
    return persistence


def test_after_one_publication_both_are_the_leaf_rule() -> None:
    seen = watch([*PATH, (2, 4)])
    src, dst = np.array([*PATH, (2, 4)], dtype=np.int32).T
    assert np.array_equal(seen.name_by_links(), find_leaves(src, dst, 8))
    assert np.array_equal(seen.name_by_nodes(), find_leaves(src, dst, 8))


def test_changing_covers_drop_out() -> None:
    seen = watch([*PATH, (2, 4), (3, 5)], [*PATH, (2, 6), (3, 7)])
    assert np.flatnonzero(seen.name_by_links()).tolist() == [2, 3]
    assert not seen.name_by_nodes().any()  # Neither was a leaf yet.


def test_a_node_that_is_always_present_and_once_a_leaf_is_named() -> None:
    seen = watch([*PATH, (2, 4), (3, 5)], [*PATH, (2, 5)], [*PATH, (3, 6)])
    assert np.flatnonzero(seen.name_by_nodes()).tolist() == [2, 3]


def test_covers_that_stay_are_never_told_apart() -> None:
    fixed = [*PATH, (2, 4), (3, 5)]
    assert np.flatnonzero(watch(fixed, fixed, fixed).name_by_links()).tolist() == [4, 5]


@pytest.mark.parametrize("observer", ["name_by_links", "name_by_nodes"])
def test_it_finds_subscribers_below_changing_covers_and_nothing_in_shuffled_labels(observer: str) -> None:
    """Both controls: a star of 40 readers, each of which has a cover in half of the publications."""
    rng, readers, nodes = np.random.default_rng(3), np.arange(1, 41), 200
    persistence = PersistentObserver(nodes)
    for _ in range(12):
        covered = readers[rng.random(40) < 0.5]
        covers = rng.choice(np.arange(41, nodes), len(covered), replace=False)
        src = np.concatenate([np.zeros(40, np.int32), covered]).astype(np.int32)
        persistence.observe(src, np.concatenate([readers, covers]).astype(np.int32))
    guess = getattr(persistence, observer)().astype(np.float64)
    subscribes = np.isin(np.arange(nodes), readers)
    assert auc(guess, subscribes) == 1
    low, high = auc_by_chance(40, 160)
    values = [auc(guess, rng.permutation(subscribes)) for _ in range(200)]
    assert np.mean([low <= value <= high for value in values]) >= 0.93
    assert np.mean(values) == pytest.approx(0.5, abs=3 * np.std(values) / len(values) ** 0.5)

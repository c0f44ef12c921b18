from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.insider.token_inference import (
    assign_best,
    compare_counts,
    compare_links,
    compare_origins,
    jaccard_similarity,
)
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.epochs import MESH_POLICIES, MeshPolicy
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.topic_mix import (
    TokenObservations,
    draw_readers,
    observe_tokens,
    settle_topics,
    zipf_popularity,
)

TOPICS = 12


def seen(conduct: MeshPolicy, seed: int) -> TokenObservations:
    graph = small_world(300, 8, 0.2, seed)
    town = settle_topics(graph, draw_readers(graph, zipf_popularity(TOPICS, 0.4), seed), 0.1, 0.1, 20, seed)
    return observe_tokens(town, conduct, 5)


def linked(conduct: MeshPolicy, seeds: int, *, notes: bool = False, shuffled: bool = False) -> tuple[float, float]:
    """The share of tokens that are found again in the next epoch, and the AUC of pairs."""
    right, order = [], []
    for seed in range(seeds):
        found, rng = seen(conduct, seed), np.random.default_rng(seed)
        for epoch in range(1, 5):
            place = rng.permutation(TOPICS)
            truth = np.argsort(rng.permutation(TOPICS) if shuffled else place)
            score = compare_links(found.noticed[epoch - 1], found.noticed[epoch][place])
            if notes:
                counts = found.notes.astype(np.float64)
                score = score + compare_counts(counts[epoch - 1], counts[epoch][place])
            same = np.zeros(score.shape, np.bool_)
            same[np.arange(TOPICS), truth] = True
            right.append(float(np.mean(assign_best(score) == truth)))
            order.append(auc(score.reshape(-1), same.reshape(-1)))
    return float(np.mean(right)), float(np.mean(order))


def test_tokens_of_a_mesh_that_stays_are_linked_though_they_change() -> None:
    """The positive control: the hardened mesh keeps parents and root, so its tokens are as good as kept."""
    share, order = linked(MESH_POLICIES["H"], 3)
    assert share > 0.95
    assert order > 0.98


def test_a_new_origin_in_each_epoch_leaves_little_to_link_by() -> None:
    kept, moved = linked(MESH_POLICIES["BL"], 4), linked(replace(MESH_POLICIES["BL"], origin="fresh"), 4)
    assert moved[0] < 0.4 < kept[0]
    assert moved[1] < 0.8 < kept[1]


def test_rates_of_notes_link_what_links_do_not() -> None:
    moving = replace(MESH_POLICIES["BL"], origin="fresh")
    assert linked(moving, 4, notes=True)[0] > linked(moving, 4)[0] + 0.05


def test_shuffled_tokens_are_not_linked() -> None:
    """The null control."""
    share, order = linked(MESH_POLICIES["BL"], 6, shuffled=True)
    assert share == pytest.approx(1 / TOPICS, abs=0.06)
    assert order == pytest.approx(0.5, abs=0.06)


def test_links_that_ask_for_every_token_do_not_hide_the_others() -> None:
    before = np.array([[True, True, False], [True, False, True]])
    crowd: NDArray[np.bool_] = np.ones((2, 20), np.bool_)
    after = before[::-1]
    assert assign_best(compare_links(before, after)).tolist() == [1, 0]
    assert assign_best(compare_links(np.hstack((before, crowd)), np.hstack((after, crowd)))).tolist() == [1, 0]
    assert jaccard_similarity(before, after).tolist() == [[1 / 3, 1], [1, 1 / 3]]


def test_counts_of_one_rate_are_likelier_of_one_topic() -> None:
    found = compare_counts(np.array([100.0, 3, -1]), np.array([4.0, 104, 50]))
    assert found[0, 1] > 0 > found[0, 0]
    assert found[1, 0] > 0 > found[1, 1]
    assert not found[2].any()


def test_counts_that_do_not_differ_say_nothing() -> None:
    assert not compare_counts(np.array([5.0, 5]), np.array([5.0, 5])).any()


def test_a_common_origin_speaks_for_one_topic() -> None:
    found = compare_origins(np.array([7, 9, -1], np.int32), np.array([9, 3, 7], np.int32), 500)
    assert found[1, 0] == pytest.approx(np.log(500)) == found[0, 2]
    assert found[0, 0] < 0 == found[2, 2]

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.attack.insider.token_inference import (
    assign_best,
    count_pairs,
    count_requests,
    name_by_rank,
    naming_likelihoods,
    refine_naming,
)
from veilcast.lab.models.epochs import MESH_POLICIES
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.topic_mix import draw_readers, observe_tokens, settle_topics, zipf_popularity


def named(conduct: str, seed: int, epochs: int, *, shuffled: bool = False) -> float:
    """The share of subscriptions whose topic is named rightly, in a town of 1,500 with ten topics."""
    graph, popularity, rng = small_world(1500, 8, 0.2, seed), zipf_popularity(10, 0.6), np.random.default_rng(seed)
    town = settle_topics(graph, draw_readers(graph, popularity, seed), 0.1, 0.1, 10, seed)
    counts = np.array(
        [count_requests(graph, view) for view in observe_tokens(town, MESH_POLICIES[conduct], epochs).views]
    ).sum(axis=2)
    order = rng.permutation(10)
    topics = order if not shuffled else rng.permutation(10)
    asked, chances = counts[order].T
    found = assign_best(naming_likelihoods(asked, chances, popularity)) == topics
    readers = town.reads.sum(axis=0)
    return float(readers[topics][found].sum() / readers.sum())


@given(st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True))
def test_the_likeliest_naming_of_tokens_with_equal_chances_is_that_of_ranks(counts: list[int]) -> None:
    popularity = zipf_popularity(len(counts), 0.5)
    asked = np.array(counts, np.float64)
    best = assign_best(naming_likelihoods(asked, np.full(asked.size, 60.0), popularity))
    assert best.tolist() == name_by_rank(asked, popularity).tolist()


def test_a_token_that_had_more_chances_to_be_seen_is_not_taken_for_a_more_popular_one() -> None:
    """The planted fault is naming by bare counts."""
    asked, chances = np.array([12.0, 10.0]), np.array([60.0, 20.0])
    popularity = np.array([0.5, 0.2])
    assert assign_best(naming_likelihoods(asked, chances, popularity)).tolist() == [1, 0]
    assert name_by_rank(asked, popularity).tolist() == [0, 1]


def test_fewer_tokens_than_topics_have_a_topic_each() -> None:
    assert assign_best(
        naming_likelihoods(np.array([10.0, 1.0]), np.array([20.0, 20.0]), np.array([0.05, 0.5, 0.2]))
    ).tolist() == [
        1,
        0,
    ]


def test_tokens_of_the_papers_mesh_are_named_by_how_many_ask() -> None:
    """The positive control: about a tenth of subscriptions by chance."""
    assert np.mean([named("BL", seed, 3) for seed in range(4)]) > 0.4


def test_shuffled_names_are_not_found() -> None:
    """The null control: of ten tokens one is right on the average, whatever was counted."""
    right = [named("BL", seed, 1, shuffled=True) for seed in range(20)]
    assert np.mean(right) == pytest.approx(0.1, abs=3 * float(np.std(right)) / 20**0.5 + 0.02)


def test_covers_that_ask_like_subscribers_hide_the_number_of_subscribers() -> None:
    assert np.mean([named("H", seed, 3) for seed in range(4)]) < 0.25


def test_pairs_of_tokens_tell_tokens_apart_that_counts_confuse() -> None:
    """Ten topics of about the same popularity, some pairs of which are read together oftener than others."""
    alone, refined_too = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        popularity, order = np.linspace(0.2, 0.3, 10), rng.permutation(10)
        lift = rng.exponential(size=(10, 10))
        together = np.outer(popularity, popularity) * (lift + lift.T)
        asked, chances = rng.binomial(400, popularity)[order].astype(np.float64), np.full(10, 400.0)
        pairs = np.triu(rng.poisson(400 * together), 1)
        first = naming_likelihoods(asked, chances, popularity)
        alone.append(np.mean(assign_best(first) == order))
        both = (pairs + pairs.T)[order][:, order].astype(np.float64)
        refined_too.append(np.mean(refine_naming(first, both, together) == order))
    assert np.mean(alone) < 0.5
    assert np.mean(refined_too) > np.mean(alone) + 0.25


def test_a_neighbour_that_asked_for_two_tokens_counts_for_the_pair_once() -> None:
    graph = small_world(200, 6, 0.2, 1)
    town = settle_topics(graph, draw_readers(graph, zipf_popularity(3, 0.6), 1), 0.1, 0.1, 10, 1)
    found = count_pairs(observe_tokens(town, MESH_POLICIES["BL hidden"], 3).views, 200)
    assert np.array_equal(found, found.T)
    assert (found <= np.minimum.outer(found.diagonal(), found.diagonal())).all()
    assert 0 < found[0, 1] <= np.count_nonzero(~town.topics[0].insiders)

from __future__ import annotations

import numpy as np
import pytest

from support.relay_users import run_small_relay
from veilcast.lab.attack.server import tag_inference
from veilcast.lab.models.relay import RelayService
from veilcast.lab.models.server_log import SUBSCRIBED, ServerLog
from veilcast.lab.models.topic_mix import zipf_popularity

POPULARITY = zipf_popularity(10, 0.5)


def named(profile: str, seed: int, *, queries: int = 0, shuffled: bool = False) -> float:
    """The share of subscriptions whose topic is named, of 800 users."""
    _, shown, answers = run_small_relay(seed, RelayService(profile), 1, users=800)  # type: ignore[arg-type]
    asked, there = shown.server.select(SUBSCRIBED), float(shown.present.sum())
    if queries:
        topics = tag_inference.choose_queries(asked, there, POPULARITY, queries)
        found = tag_inference.name_tags_by_queries(asked, there, POPULARITY, topics, answers.topic[0][topics])
    else:
        found = tag_inference.name_tags(asked, there, POPULARITY)
    tags = answers.topic[0] if not shuffled else np.random.default_rng(seed).permutation(answers.topic[0])
    order = np.argsort(tags)
    truth = order[np.searchsorted(tags[order], asked.what)]
    return float(np.mean(found.topics_of(asked.what) == truth))


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_tags_are_named_by_how_many_subscribe(profile: str) -> None:
    """The positive control: of either relay the server counts all that comes."""
    assert np.mean([named(profile, seed) for seed in range(6)]) > 0.75


def test_shuffled_tags_are_not_named() -> None:
    """The null control."""
    found = [named("hardened", seed, shuffled=True) for seed in range(30)]
    assert np.mean(found) == pytest.approx(0.1, abs=3 * float(np.std(found)) / 30**0.5 + 0.02)


def test_a_server_that_may_ask_knows_what_it_asked_for_and_guesses_the_rest_better() -> None:
    none, few, all_of_them = (np.mean([named("hardened", seed, queries=q) for seed in range(6)]) for q in (0, 3, 10))
    assert none < few < all_of_them == 1.0


def test_of_more_tags_than_topics_the_most_frequent_have_names() -> None:
    _, shown, _ = run_small_relay(1, RelayService("hardened"), 1)
    asked = shown.proxy.select(SUBSCRIBED)
    found = tag_inference.name_tags(asked, float(shown.present.sum()), POPULARITY)
    assert found.tags.size == 10
    assert np.count_nonzero(found.topics_of(asked.what) >= 0) == 10
    said = tag_inference.mark_interests(asked.who, found.topics_of(asked.what), (120, 10))
    assert said.sum() == 10


def test_pairs_of_tags_tell_tags_apart_that_counts_confuse() -> None:
    rng = np.random.default_rng(4)
    taste = rng.integers(2, size=1500)
    # Five topics of one taste, five of the other, all about as popular.
    share = np.where(taste[:, None] == np.repeat([0, 1], 5), rng.permutation(np.linspace(0.5, 0.62, 10)), 0.1)
    reads = rng.random((1500, 10)) < share
    together = reads.T.astype(np.float64) @ reads / len(reads)
    popularity = reads.mean(axis=0)
    user, topic = np.nonzero(reads[rng.permutation(1500)[:400]])
    tags = rng.permutation(10)
    zeros = np.zeros(user.size, np.int64)
    asked = ServerLog(zeros, zeros, zeros.astype(np.int8), user, tags[topic])
    alone = tag_inference.name_tags(asked, 400.0, popularity)
    pairs = tag_inference.name_tags_by_pairs(asked, 400.0, popularity, together)
    truth = np.argsort(tags)
    assert np.mean(pairs.topics == truth) > np.mean(alone.topics == truth)

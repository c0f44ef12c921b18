"""Runs with several topics, and insiders without keys."""

from __future__ import annotations

from statistics import mean

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshTopics
from veilcast.lab.runs.mesh.topics_model import run


def of_topics(**more: object) -> MeshTopics:
    given = {"nodes": 300, "degree": 8, "topics": 8, "ratio": 0.5, "insiders": 0.1, "churn": 0.1, **more}
    return MeshTopics(steps=(1, 4), **given)  # type: ignore[arg-type]


def means(params: MeshTopics, seeds: int) -> dict[tuple[str, str, float], float]:
    runs = [{(one.attack, one.metric, one.step): one.value for one in run(params, seed)} for seed in range(seeds)]
    return {key: mean(found[key] for found in runs if key in found) for key in runs[0]}


def test_tokens_of_the_papers_mesh_are_named_and_followed() -> None:
    found = means(of_topics(), 8)
    assert found["token-frequency", "named_readers", 4] > 0.4 > found["token-frequency", "base", 4] == 1 / 8
    assert found["relinking", "followed", 4] > 0.95
    assert found["token-frequency-relinked", "named", 4] == pytest.approx(
        found["token-frequency", "named", 4], abs=0.05
    )
    assert ("relinking", "auc", 1) not in found


def test_covers_hide_names_and_keep_subscriptions_anonymous_but_tokens_are_linked() -> None:
    found = means(of_topics(kappa=0.78), 8)
    assert found["token-frequency", "named", 4] < 0.25
    prior = found["group-testing", "subscription_prior", 4]
    assert found["group-testing", "subscription", 4] == pytest.approx(prior, abs=0.02)
    assert found["relinking-links", "auc", 4] > 0.98


def test_new_roots_make_tokens_hard_to_follow() -> None:
    found = means(of_topics(kappa=0.78, origin="fresh"), 6)
    assert found["relinking", "followed", 4] < 0.5
    assert found["relinking", "linked", 4] < 0.8


def test_key_holders_learn_what_is_read_where_nobody_covers() -> None:
    found = means(of_topics(origin="fresh"), 6)
    prior = found["group-testing", "subscription_prior", 4]
    assert found["group-testing", "subscription", 4] > prior + 0.03 > found["group-testing", "subscription_bound", 4]


def test_the_same_run_gives_the_same_measures() -> None:
    assert run(of_topics(), 3) == run(of_topics(), 3)


def test_tokens_without_insiders_are_seen_by_nobody() -> None:
    with pytest.raises(ConfigError, match="insiders"):
        of_topics(insiders=0.0)

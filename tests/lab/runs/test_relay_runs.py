"""Runs of a relay: what remains of each attacker in the paper's relay, in the hardened one, and behind batches."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.runs.relay.attacks_model import run

Found = dict[tuple[str, str, float], float]


def of_relay(relay: str, **more: object) -> RelayAttacks:
    given = {"nodes": 120, "topics": 12, "ratio": 0.5, "churn": 0.3, "queries": 3, **more}
    return RelayAttacks(relay=relay, steps=(1, 8), **given)  # type: ignore[arg-type]


@cache
def means(relay: str, batch: float = 0.0) -> Found:
    params = of_relay(relay, batch=batch)
    runs = [{(one.attack, one.metric, one.step): one.value for one in run(params, seed)} for seed in range(4)]
    return {key: mean(found[key] for found in runs) for key in runs[0]}


def test_the_papers_server_reads_all_and_its_proxy_links_all() -> None:
    found = means("paper")
    assert found["dictionary", "named_readers", 1] == 1.0
    assert found["bodies", "auc", 8] > 0.95
    assert found["proxy-frequency", "subscription", 8] > found["proxy-frequency", "subscription_bound", 8] + 0.1
    assert found["filter-intersection", "topic_subscribers", 8] > 0.4
    assert found["filter-intersection", "linked", 8] > 0.2


def test_of_the_hardened_relay_a_server_that_sees_who_is_there_learns_no_more_than_the_definitions_allow() -> None:
    found, attack = means("hardened"), "filter-intersection"
    prior = max(found[attack, "subscription_prior", 8], found[attack, "subscription_bound", 8])
    assert found[attack, "subscription", 8] <= prior + 0.01
    bound = found[attack, "topic_subscribers_bound", 8]
    assert found[attack, "topic_subscribers", 8] == pytest.approx(bound, abs=0.04)
    assert found[attack, "auc", 8] == pytest.approx(0.5, abs=0.04)


def test_the_model_does_not_answer_what_its_random_numbers_decide() -> None:
    """Its hardened tags, bodies and subjects are random numbers, and it has no records at a constant rate."""
    asked = {attack for attack, _, _ in means("hardened")}
    assert not asked & {"dictionary", "bodies", "proxy-frequency"}
    assert asked >= {"tag-frequency", "filter-intersection", "timing", "matching", "disclosure"}
    with pytest.raises(ConfigError, match="machines"):
        run(of_relay("hardened", constant=True), 1)


def test_counting_asking_and_sorting_remain() -> None:
    found = means("hardened")
    assert found["tag-frequency", "named_readers", 8] > 0.3 > found["tag-frequency", "base", 8]
    assert found["oracle", "named_readers", 8] > found["tag-frequency", "named_readers", 8]
    assert found["order", "recovered", 8] > 0.9


def test_topics_that_are_taken_for_one_another_are_not_named_though_somebody_wants_both() -> None:
    """The same counts give the same names in either relay: nobody is away, and one epoch is all there is."""
    paper, hardened = (
        {
            (one.attack, one.metric): one.value
            for one in run(of_relay(relay, nodes=1000, churn=0.0, observers=("server",)), 5)
        }
        for relay in ("paper", "hardened")
    )
    # Tags that as many subscribe by are named in any order.
    assert paper["tag-frequency", "named_readers"] == pytest.approx(
        hardened["tag-frequency", "named_readers"], abs=0.02
    )


def test_an_observer_of_the_wires_finds_publishers_and_readers_and_batches_slow_it_down() -> None:
    bare, batched = means("hardened"), means("hardened", 6.0)
    bound = bare["timing", "publisher_bound", 8]
    assert bare["timing", "publisher", 8] == 1.0 > 0.5 > batched["timing", "publisher", 8] > 10 * bound
    assert batched["matching", "publisher", 8] > batched["timing", "publisher", 8] + 0.1
    for attack in ("disclosure", "timing-subscriptions"):
        assert bare[attack, "auc", 8] > batched[attack, "auc", 8] > 0.6


def test_the_same_run_of_a_relay_gives_the_same_measures() -> None:
    assert run(of_relay("hardened", batch=4.0), 3) == run(of_relay("hardened", batch=4.0), 3)


def test_a_relay_without_topics_is_none() -> None:
    with pytest.raises(ConfigError, match="topics"):
        of_relay("paper", topics=0)


def test_a_parameter_of_a_mesh_is_refused_for_a_relay_and_the_reverse() -> None:
    with pytest.raises(ConfigError, match=r"relay\.attacks have no parameter kappa"):
        make_params("relay.attacks", {"relay": "paper", "topics": 3, "steps": [1], "kappa": 0.5})
    with pytest.raises(ConfigError, match=r"mesh\.flows have no parameter batch"):
        make_params("mesh.flows", {"batch": 3.0})

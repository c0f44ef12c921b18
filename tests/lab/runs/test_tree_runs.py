"""Runs of trees: what they cost, what remains of each attacker, and how well droppers are found."""

from __future__ import annotations

from functools import cache
from statistics import mean
from typing import Any

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.params import RunParams
from veilcast.lab.experiment.tree_params import TreeAttacks, TreeCosts, TreeDefinitions, TreeDroppers
from veilcast.lab.runs.table import ENGINES
from veilcast.lab.runs.tree import costs_model

Found = dict[tuple[str, str, float], float]


def means(params: RunParams, seeds: int) -> Found:
    runs = [
        {(one.attack, one.metric, one.step): one.value for one in ENGINES["kernel"](params, seed, None)}
        for seed in range(seeds)
    ]
    return {key: mean(found[key] for found in runs) for key in runs[0]}


@cache
def attacked(tree: str, **more: object) -> Found:
    given: dict[str, object] = {"nodes": 150, "insiders": 0.1, "publications": 20, **more}
    return means(TreeAttacks(tree=tree, steps=(1, 60), **given), 20)  # type: ignore[arg-type]


def costs(**given: object) -> dict[str, float]:
    params = TreeCosts(**{"nodes": 100, "readers": 5, "publications": 4, **given})  # type: ignore[arg-type]
    return {measure.metric: measure.value for measure in costs_model.run(params, 1)}


def test_what_trees_cost_grows_with_the_chain_and_not_with_what_others_read() -> None:
    paper, hardened, longer = costs(tree="paper"), costs(tree="hardened"), costs(tree="hardened", chain=5)
    assert paper["server"] == 20
    assert 5 * 2 < paper["messages"] <= paper["copies"] <= 5 * 3
    assert longer["copies"] - hardened["copies"] == 5 * 2
    assert hardened["hops"] > 4 + 2 > 3 >= paper["hops"]
    assert costs(tree="paper", routing="seen")["messages"] > 5 * paper["messages"]
    assert costs(tree="paper", routing="labels", readers=2)["cut"] in (0.0, 0.25, 0.5, 0.75, 1.0)


def test_hardened_trees_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="never mixed"):
        costs(tree="hardened", routing="seen")


def test_the_papers_subscriber_is_found_by_counting_and_by_lengths() -> None:
    found = attacked("paper")
    for attack in ("count", "likelihood", "depth", "volume"):
        assert found[attack, "first", 60] > 0.9
    assert found["depth", "named", 1] == pytest.approx(found["path", "below_root", 60], abs=0.25)
    assert found["count", "disclosed", 60] > 0.9
    assert found["path", "owned", 60] < 0.02


def test_hardened_a_subscriber_is_found_if_its_guard_colludes_and_else_not() -> None:
    found = attacked("hardened")
    for attack in ("count", "guards", "lasting"):
        assert found[attack, "first", 60] < 0.3
    assert found["guards", "belief", 60] == pytest.approx(0.1, abs=0.13)
    assert found["depth", "named", 60] < 0.02


def test_a_tail_takes_away_certainty() -> None:
    assert attacked("hardened", insiders=0.3, tail=3)["guards", "belief", 60] < 0.15
    assert attacked("hardened", insiders=0.3)["guards", "belief", 60] > 0.15


def test_fresh_guards_are_no_defence() -> None:
    assert attacked("hardened", guards="fresh")["guards", "first", 60] > 0.9


@cache
def read(tree: str, **more: Any) -> Found:
    given = {"nodes": 100, "insiders": 0.1, "topics": 4, "ratio": 0.1, "steps": (1, 60), **more}
    return means(TreeDefinitions(tree=tree, **given), 6)  # type: ignore[arg-type]


def test_the_papers_readers_are_named_and_so_is_what_they_read() -> None:
    found = read("paper")
    assert found["count", "auc", 60] > 0.95
    assert found["count", "topic_subscribers", 60] > 0.6 > 10 * found["count", "topic_subscribers_bound", 60] / 3
    assert found["count", "subscription", 60] > found["count", "subscription_prior", 60] + 0.1


def test_hardened_readers_are_named_as_far_as_their_guards_collude() -> None:
    found = read("hardened")
    assert found["count", "topic_subscribers", 60] < found["count", "topic_subscribers_bound", 60] + 0.25


@pytest.mark.parametrize("tree", ["paper", "hardened"])
def test_a_publisher_is_named_where_its_publications_begin_and_nowhere_else(tree: str) -> None:
    """Definition 1. The planted fault is a publisher that does not hand its publications to a random origin."""
    hidden, own = (read(tree, ratio=0.4, publications=10, origins=origins) for origins in ("anonymous", "own"))
    assert hidden["origin", "publisher", 60] <= 1 / 6 < 0.3 < own["origin", "publisher", 60]
    assert hidden["origin", "publisher_bound", 60] == pytest.approx(1 / 90)


def test_droppers_are_named_and_where_nobody_drops_nobody_is() -> None:
    params = TreeDroppers(nodes=120, droppers=0.05, steps=(1, 8))
    found = means(params, 3)
    assert found["suspects", "recall", 8] > 0.6 > found["shuffled", "recall", 8]
    assert found["suspects", "precision", 8] > 0.8
    assert found["honest", "named", 8] < 1


def test_the_same_run_of_trees_gives_the_same_measures() -> None:
    for params in (
        TreeAttacks(tree="hardened", nodes=60, steps=(3,), insiders=0.2, tail=2, churn=0.1),
        TreeDroppers(nodes=60, steps=(2,), droppers=0.1),
        TreeCosts(tree="paper", nodes=60, readers=3, routing="labels"),
    ):
        assert ENGINES["kernel"](params, 3, None) == ENGINES["kernel"](params, 3, None)


def test_what_trees_do_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="kappa"):
        make_params("tree.costs", {"tree": "paper", "kappa": 0.5})
    with pytest.raises(ConfigError, match="relay"):
        make_params("tree.costs", {"tree": "paper", "relay": "paper"})
    with pytest.raises(ConfigError, match="at least 1"):
        TreeCosts(tree="paper", chain=0)
    with pytest.raises(ConfigError, match="readers"):
        make_params("mesh.flows", {"readers": 3})

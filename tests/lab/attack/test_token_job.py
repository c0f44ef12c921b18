"""Tokens on tables: named by their number of requests, linked by their surroundings, and the subscribers revealed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, union_tables
from veilcast.lab.attack.insider import token_job
from veilcast.lab.attack.insider.token_inference import assign_best, count_requests, naming_likelihoods
from veilcast.lab.attack.insider.token_job import guess_from_tokens
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.epochs import MESH_POLICIES
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.topic_mix import (
    TokenObservations,
    TopicMix,
    draw_readers,
    observe_tokens,
    settle_topics,
    zipf_popularity,
)
from veilcast.lab.runs.mesh.topics_model import TopicTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, TOPICS, EPOCHS = 200, 4, 4
POPULAR = zipf_popularity(TOPICS, 0.5)
PUBLIC = ("insiders", "topology", "presence", "facts", "roots", "popularity")


@cache
def world(conduct: str = "BL") -> tuple[TopicMix, TokenObservations, dict[str, pa.Table], dict[str, str]]:
    """A town, what its insiders saw as arrays and as tables, and the topic of each token."""
    graph = small_world(NODES, 8, 0.2, 5)
    town = settle_topics(graph, draw_readers(graph, POPULAR, 5), 0.2, 0.1, 10, 5)
    traces = observe_tokens(town, MESH_POLICIES[conduct], EPOCHS)
    made = TopicTables(town, MESH_POLICIES[conduct], traces, 5)
    truth = made.tabulate_truth()
    tokens = truth.filter(pc.equal(truth["role"], "token"))
    topics = dict(zip(tokens["node"].to_pylist(), tokens["topic"].to_pylist(), strict=True))
    return town, traces, made.observe(POPULAR, None), topics


def guess(observed: dict[str, pa.Table], *names: str, epochs: tuple[int, ...] = (1, EPOCHS)) -> pa.Table:
    found = guess_from_tokens(observed, names or None, epochs)
    assert isinstance(found, pa.Table)
    return found


def pairs(guesses: pa.Table, attack: str, role: str, epochs: int) -> list[tuple[str, str]]:
    """Topics and nodes with a score above 0."""
    chosen = guesses.filter(
        pc.and_(
            pc.and_(pc.equal(guesses["attack"], attack), pc.equal(guesses["role"], role)),
            pc.and_(pc.equal(guesses["epochs"], epochs), pc.greater(guesses["score"], 0)),
        )
    )
    return list(zip(chosen["topic"].to_pylist(), chosen["node"].to_pylist(), strict=True))


@pytest.mark.parametrize("until", [1, EPOCHS])
def test_tables_name_lasting_tokens_as_arrays_do(until: int) -> None:
    town, traces, observed, topics = world()
    counted = np.array([count_requests(town.topics[0].graph, view.first_epochs(until)) for view in traces.views])
    asked, chances = counted.sum(axis=2).T
    named = assign_best(naming_likelihoods(asked, chances, POPULAR))
    found = pairs(guess(observed, "token-frequency", epochs=(until,)), "token-frequency", "first-token", until)
    assert {topics[token]: topic for topic, token in found} == {f"t{at}": f"t{name}" for at, name in enumerate(named)}


def test_without_the_link_between_tokens_the_last_epoch_alone_is_counted() -> None:
    town, traces, observed, topics = world()
    counted = np.array([count_requests(town.topics[0].graph, view) for view in traces.views])
    asked, chances = counted[:, :, -1].T
    named = assign_best(naming_likelihoods(asked, chances, POPULAR))
    found = pairs(guess(observed, "token-frequency-once"), "token-frequency-once", "token", EPOCHS)
    assert {topics[token]: topic for topic, token in found} == {f"t{at}": f"t{name}" for at, name in enumerate(named)}


def test_an_attacker_without_lasting_tokens_or_keys_has_what_surroundings_tell() -> None:
    _, _, observed, _ = world()
    found = guess({name: observed[name] for name in PUBLIC})
    attacks = {"token-frequency-once", "token-frequency-relinked", "relinking", "relinking-links"}
    assert set(found["attack"].to_pylist()) == attacks


def test_tokens_that_change_are_followed_as_far_as_they_are_linked() -> None:
    _, _, observed, topics = world("H")
    found = guess({name: observed[name] for name in PUBLIC}, "relinking")
    followed = pairs(found, "relinking", "followed", EPOCHS)
    assert len(followed) == TOPICS
    assert all(topics[first] == topics[last] and first != last for first, last in followed)
    assert {row["epochs"] for row in found.to_pylist() if row["role"] == "next"} == {2, 3, 4}


def found_readers(guesses: pa.Table, attack: str, shift: int = 0) -> float:
    """The mean AUC of who reads what; with a shift, of another topic."""
    town = world()[0]
    honest = np.flatnonzero(~town.topics[0].insiders)
    reads, scores = town.reads[honest], np.zeros((TOPICS, NODES))
    for row in guesses.to_pylist():
        if (row["attack"], row["role"], row["epochs"]) == (attack, "subscriber", EPOCHS):
            scores[int(row["topic"][1:]), int(row["node"][1:])] = row["score"]
    return float(np.mean([auc(scores[at][honest], reads[:, (at + shift) % TOPICS]) for at in range(TOPICS)]))


def test_subscribers_are_found_by_a_holder_of_keys_and_by_lasting_tokens() -> None:
    """The positive control; the null control are the subscribers of other topics."""
    found = guess(world()[2], "group-testing", "token-frequency")
    assert found_readers(found, "group-testing") > 0.65
    assert found_readers(found, "token-frequency") > 0.6
    wrong = [found_readers(found, "group-testing", shift) for shift in range(1, TOPICS)]
    assert np.mean(wrong) == pytest.approx(0.5, abs=0.06)


@pytest.mark.all_only
def test_spark_gives_the_same_guesses(spark: SparkSession) -> None:
    observed = world()[2]
    given: dict[str, AnyTable] = {name: spark.createDataFrame(table) for name, table in observed.items()}
    there = guess_from_tokens(given, None, (1, EPOCHS))
    assert not isinstance(there, pa.Table)
    here = guess(observed)
    order = [(name, "ascending") for name in here.column_names]
    assert there.toArrow().select(here.column_names).sort_by(order).equals(here.sort_by(order))


def test_roots_that_are_not_public_are_inferred() -> None:
    observed = world()[2]
    hidden = {name: observed[name] for name in PUBLIC if name != "roots"}
    assert len(pairs(guess(hidden, "token-frequency-once"), "token-frequency-once", "token", EPOCHS)) == TOPICS


def test_more_tokens_than_topics_leave_some_without_a_name() -> None:
    assert assign_best(np.array([[1.0], [3.0], [2.0]])).tolist() == [-1, 0, -1]


def test_unknown_attacks_and_impossible_shares_are_refused() -> None:
    _, _, observed, _ = world()
    with pytest.raises(ConfigError, match="no attack on tokens is called 'wishing'"):
        guess(observed, "wishing")
    everybody = tables.from_columns("popularity", run="run", topic=["t0"], share=1.0)
    with pytest.raises(ConfigError, match="between none and all"):
        guess(observed | {"popularity": everybody})


def test_covers_are_expected_among_those_who_do_not_subscribe() -> None:
    given = {
        "popularity": tables.from_columns("popularity", run="r", topic=["a"], share=0.2),
        "facts": tables.from_columns("facts", run="r", name=["cover_share"], value=0.5),
    }
    united = union_tables(
        [
            RunTable("popularity", given["popularity"], {"word": "topic", "share": "share"}),
            RunTable("facts", given["facts"], {"word": "name", "share": "value"}),
        ]
    )
    shares: tuple[NDArray[np.float64], ...] = token_job._share_of_askers(GroupedRun(united))
    assert [each.tolist() for each in shares] == [[0.2], [pytest.approx(0.6)]]

"""The attackers of a relay over tables: the same guesses on both engines, and those that the model's arrays give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.relay_users import run_small_relay
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, union_tables
from veilcast.lab.attack.registry import attack_names, attackers_on
from veilcast.lab.attack.server import batch_disclosure, linkage, server_job, tag_inference
from veilcast.lab.attack.server.observations import ServerObservations
from veilcast.lab.attack.server.server_job import guess_from_server
from veilcast.lab.measure.relay_guesses import measure_relay_guesses
from veilcast.lab.models.prefix_tags import draw_prefix_tags
from veilcast.lab.models.relay import EPOCH_US, RelayObservations, RelayService, RelayTruth, RelayUsers
from veilcast.lab.models.server_log import PUBLISHED, SUBSCRIBED
from veilcast.lab.models.topic_mix import zipf_popularity
from veilcast.lab.runs.relay.relay_tables import observe_relay, observe_values
from veilcast.lab.tables import GuessRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS, TOPICS, EPOCHS = 40, 8, 3
SHARES = zipf_popularity(TOPICS, 0.5)
RUNS = {"paper": RelayService("paper", batch=6), "hardened": RelayService("hardened", batch=6)}
PARTS = {"server", "present", "proxy", "bodies", "wires", "words", "popularity", "together", "answers", "queries"}


@cache
def world(run: str) -> tuple[RelayUsers, RelayObservations, RelayTruth]:
    return run_small_relay(5, RUNS[run], EPOCHS, users=USERS, topics=TOPICS)


@cache
def observed(run: str) -> dict[str, pa.Table]:
    people, shown, answers = world(run)
    together = np.outer(SHARES, SHARES)
    return observe_relay(run, people, RUNS[run], shown, answers, SHARES, together, 2, 0.001)


@cache
def guesses(run: str) -> pa.Table:
    found = guess_from_server(observed(run), None, [1, EPOCHS])
    assert isinstance(found, pa.Table)
    return found


def matrix(run: str, attack: str, role: str, epochs: int = EPOCHS) -> dict[tuple[str, str], float]:
    rows = [
        row for row in guesses(run).to_pylist() if (row["attack"], row["role"], row["epochs"]) == (attack, role, epochs)
    ]
    return {(row["topic"], row["node"]): row["score"] for row in rows if row["score"]}


def entries(
    scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rows: str, columns: str
) -> dict[tuple[str, str], float]:
    return {(rows % row, columns % column): float(scores[row, column]) for row, column in np.argwhere(scores)}


def test_both_engines_give_the_same_guesses_for_all_runs_together(spark: SparkSession) -> None:
    both = {name: pa.concat_tables([observed(run)[name] for run in RUNS]) for name in observed("paper")}
    frames = {name: spark.createDataFrame(table) for name, table in both.items() if name != "truth"}
    there = guess_from_server(frames, None, [1, EPOCHS])
    assert not isinstance(there, pa.Table)
    keys = [(name, "ascending") for name in tables.arrow_schema(GuessRow).names]
    expected = pa.concat_tables([guesses(run) for run in RUNS]).sort_by(keys)
    assert there.toArrow().select(expected.column_names).cast(expected.schema).sort_by(keys).equals(expected)


def test_every_attacker_of_a_relay_guesses() -> None:
    said = {row["attack"] for run in RUNS for row in guesses(run).to_pylist()}
    assert said == set(attack_names(ServerObservations)) - {"order"}


@pytest.mark.parametrize("run", RUNS)
def test_guesses_from_tables_are_those_of_the_models_arrays(run: str) -> None:
    people, shown, _ = world(run)
    assert matrix(run, "bodies", "reader") == entries(linkage.link_bodies(shown.proxy, USERS), "u%02d", "u%02d")
    assert matrix(run, "disclosure", "reader") == entries(
        batch_disclosure.fit_profiles(*shown.publishing), "u%02d", "u%02d"
    )
    first = 0 if run == "paper" else EPOCHS - 1
    asked, there = shown.server.select(SUBSCRIBED, first, EPOCHS - 1), float(shown.present[first:].sum())
    last = shown.server.select(SUBSCRIBED, EPOCHS - 1, EPOCHS - 1)
    topics = tag_inference.name_tags(asked, there, SHARES).topics_of(last.what)
    named = {(f"t{topic}", f"{who:016x}"): 1.0 for topic, who in zip(topics.tolist(), last.who.tolist(), strict=True)}
    assert matrix(run, "tag-frequency", "pseudonym") == {pair: one for pair, one in named.items() if pair[0] != "t-1"}
    published = shown.server.select(PUBLISHED, EPOCHS - 1)
    before = len(shown.server.select(PUBLISHED)) - len(published)
    spread = batch_disclosure.spread_over_senders(shown.publishing.sent, shown.windows(published))
    everything = {(f"p{before + row:03}", f"u{user:02}"): float(spread[row, user]) for row, user in np.argwhere(spread)}
    assert matrix(run, "timing", "publisher") == everything
    assert people.users == USERS


@pytest.mark.parametrize("run", RUNS)
def test_an_attacker_sees_only_the_parts_that_it_names(run: str) -> None:
    whole = server_job._RunTables(GroupedRun(union_tables(server_job._relations(observed(run), PARTS)))).build()
    assert all(getattr(whole, part) is not None for part in PARTS)
    for attacker in attackers_on(ServerObservations):
        if attacker.name != "order":
            hidden: dict[str, Any] = dict.fromkeys(PARTS - set(attacker.needs))
            alone = replace(whole, **hidden)
            assert np.array_equal(attacker.score(alone), attacker.score(whole)), attacker.name


def test_an_attacker_without_its_tables_is_left_out() -> None:
    alone = {name: table for name, table in observed("paper").items() if name not in ("cells", "words", "pairs")}
    found = guess_from_server(alone)
    assert isinstance(found, pa.Table)
    kept = set(pc.unique(found["attack"]).to_pylist())
    assert {"tag-frequency", "bodies", "oracle"} <= kept
    assert not kept & {"dictionary", "disclosure", "timing", "matching", "tag-frequency-pairs"}
    with pytest.raises(ConfigError, match="table server"):
        guess_from_server({"presence": alone["presence"]})


def test_epochs_are_numbered_from_the_first_one_that_was_seen() -> None:
    """Epochs of real networks are far from 0."""
    far = 170_000_000

    def later(name: str, table: pa.Table) -> pa.Table:
        for column, length in (("epoch", 1), ("t_us", EPOCH_US)):
            if column in table.column_names:
                place = table.column_names.index(column)
                table = table.set_column(place, column, pc.add(table[column], far * length))
        return table

    moved = {name: later(name, table) for name, table in observed("hardened").items() if name != "truth"}
    there = guess_from_server(moved, None, [1, EPOCHS])
    assert isinstance(there, pa.Table)
    assert there.equals(guesses("hardened"))


def test_shuffled_truth_is_not_found() -> None:
    """The null control."""
    truth = observed("paper")["truth"]
    subscribers = pc.equal(truth["role"], "subscriber")
    names = truth["node"].to_pylist()
    rng = np.random.default_rng(3)
    moved = dict(zip(sorted(set(names)), rng.permutation(sorted(set(names))), strict=True))
    users = [f"u{user:02}" for user in range(USERS)]
    moved |= dict(zip(users, rng.permutation(users).tolist(), strict=True))
    shuffled = [moved[name] if own else name for name, own in zip(names, subscribers.to_pylist(), strict=True)]
    null = truth.set_column(truth.column_names.index("node"), "node", pa.array(shuffled))
    for table, low, high in ((truth, 0.85, 1.0), (null, 0.3, 0.7)):
        found = {
            (attack, metric): value
            for attack, metric, epochs, value in measure_relay_guesses(guesses("paper"), table, EPOCH_US)
            if epochs == EPOCHS
        }
        assert low <= found["bodies", "auc"] <= high


def test_values_are_sorted_over_tables_as_over_arrays(spark: SparkSession) -> None:
    drawn = draw_prefix_tags(5, 30, 30, 0.3, 4)
    seen = observe_values("r", drawn)
    here = guess_from_server(seen, ["order"])
    there = guess_from_server({"server": spark.createDataFrame(seen["server"])}, ["order"])
    assert isinstance(here, pa.Table)
    assert not isinstance(there, pa.Table)
    assert there.toArrow().sort_by("node").equals(here.sort_by("node"))
    places = dict(zip(here["node"].to_pylist(), here["score"].to_pylist(), strict=True))
    expected = tag_inference.order_publications(drawn.asked, drawn.ranges)
    assert [places.get(f"p{number:02}", 0.0) for number in range(30)] == expected.tolist()


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ConfigError, match="no attack at a relay is called 'closure'"):
        guess_from_server(observed("paper"), ["closure"])

"""Tokens on tables: named by their number of requests, linked by their surroundings, and the subscribers revealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, union_tables
from veilcast.lab.attack.insider import token_job
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.observations import CoalitionObservations, HeardAdverts, HeardChains
from veilcast.lab.attack.insider.token_inference import assign_best, count_requests, naming_likelihoods
from veilcast.lab.attack.insider.token_job import TokenViews, guess_from_tokens, track_by_bytes, track_by_surroundings
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.coalition_view import write_insiders
from veilcast.lab.models.epochs import MESH_POLICIES
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.link_observations import LinkObservations
from veilcast.lab.models.topic_mix import (
    TokenObservations,
    TopicMix,
    draw_readers,
    observe_tokens,
    settle_topics,
    zipf_popularity,
)
from veilcast.observe import (
    FactRow,
    InsiderRow,
    ObservationRow,
    PopularityRow,
    PresenceRow,
    RootRow,
    TopologyRow,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, TOPICS, EPOCHS, EPOCH_US = 200, 4, 4, 1_000_000
NAMES = [f"n{number:03}" for number in range(NODES)]
POPULAR = zipf_popularity(TOPICS, 0.5)
ASKS = {f"topic {number}": float(share) for number, share in enumerate(POPULAR)}
RUNS = ("kept", "changing")
"""The same world with tokens that stay, and with others in each epoch."""
Guessed = dict[tuple[str, str, int, str], dict[str, float]]
"""By run, attack, number of epochs and topic, the score of each node."""


class World(NamedTuple):
    town: TopicMix
    traces: TokenObservations


@cache
def world(conduct: str = "BL") -> World:
    graph = small_world(NODES, 8, 0.2, 5)
    town = settle_topics(graph, draw_readers(graph, POPULAR, 5), 0.2, 0.0, 10, 5)
    return World(town, observe_tokens(town, MESH_POLICIES[conduct], EPOCHS))


def token(run: str, topic: int, epoch: int) -> bytes:
    """The order of the tokens' bytes differs from that of topics."""
    return b"%d" % (-topic % TOPICS) if run == "kept" else b"%d/%d" % (epoch, (topic + epoch) % TOPICS)


def shown(run: str) -> list[ObservationRow]:
    town, traces = world()
    found: list[ObservationRow] = []
    for topic, view in enumerate(traces.views):
        for row in write_insiders(view, run, NAMES, b"", start_us=0, epoch_us=EPOCH_US, hop_us=1).to_pylist():
            if row["kind"] != "in:Notify":
                found.append(InsiderRow(**row | {"token": token(run, topic, row["epoch"])}))
        ours = [NAMES[node] for node in np.unique(view.observer)]
        for epoch, notes in enumerate(traces.notes[:, topic].tolist()):
            # Everybody hears adverts, and so of the token.
            heard = (run, epoch, epoch * EPOCH_US)
            name = token(run, topic, epoch)
            found += [InsiderRow(*heard, one, one, "in:Advert", b"", name, b"", "") for one in ours]
            found += [
                InsiderRow(*heard, ours[0], ours[0], "in:Notify", b"%d" % note, name, b"", "") for note in range(notes)
            ]
    u, v = town.topics[0].graph.edges()
    found += [TopologyRow(run, 0, NAMES[a], NAMES[b]) for a, b in zip(u, v, strict=True)]
    present = traces.views[0].present
    found += [PresenceRow(run, int(epoch), NAMES[node]) for epoch, node in np.argwhere(present)]
    return found


def tables_of(found: list[ObservationRow]) -> dict[str, pa.Table]:
    kinds = (InsiderRow, TopologyRow, PresenceRow, PopularityRow, FactRow, RootRow)
    return {
        tables.TABLE_OF[kind]: tables.from_rows(kind, [row for row in found if isinstance(row, kind)]) for kind in kinds
    }


@pytest.fixture(scope="module", params=["arrow", pytest.param("spark", marks=pytest.mark.all_only)])
def guessed(request: pytest.FixtureRequest) -> Guessed:
    found = [row for run in RUNS for row in shown(run)]
    for run in RUNS:
        found += [FactRow(run, "hop_us", 1.0), *(PopularityRow(run, topic, share) for topic, share in ASKS.items())]
        found += [
            RootRow(run, token(run, topic, epoch).hex().upper(), epoch, NAMES[int(node)])
            for topic, view in enumerate(world().traces.views)
            for epoch, node in enumerate(view.origin)
        ]
    given: Mapping[str, AnyTable] = tables_of(found)
    if request.param == "spark":
        spark: SparkSession = request.getfixturevalue("spark")
        given = {name: spark.createDataFrame(table) for name, table in given.items()}
    answer = guess_from_tokens(given, epochs=(1, EPOCHS))
    scores: Guessed = {}
    for row in (answer if isinstance(answer, pa.Table) else answer.toArrow()).to_pylist():
        key = (row["run"], row["attack"], row["epochs"], row["topic"])
        scores.setdefault(key, {})[row["node"]] = row["score"]
    return scores


def honest() -> NDArray[np.intp]:
    return np.flatnonzero(~world().town.topics[0].insiders)


def told(scores: dict[str, float]) -> NDArray[np.float64]:
    return np.array([scores[NAMES[node]] for node in honest()])


@pytest.mark.parametrize(
    ("run", "first", "until"), [("kept", 0, 1), ("kept", 0, EPOCHS), ("changing", EPOCHS - 1, EPOCHS)]
)
def test_tables_name_tokens_as_arrays_do(guessed: Guessed, run: str, first: int, until: int) -> None:
    """By what was counted of the same tokens: in all epochs, or in the last alone."""
    town, traces = world()
    graph, views = town.topics[0].graph, [_since(view.first_epochs(until), first) for view in traces.views]
    asked, chances = np.array([count_requests(graph, view) for view in views]).sum(axis=2).T
    for view, name in zip(views, assign_best(naming_likelihoods(asked, chances, POPULAR)), strict=True):
        wanted = infer_beliefs(build_group_tests(graph, view), NODES, POPULAR[name])[honest()]
        assert told(guessed[run, "token-frequency", until, f"topic {name}"]) == pytest.approx(wanted)


def _since(view: LinkObservations, epoch: int) -> LinkObservations:
    late = {name: getattr(view, name)[epoch:] for name in ("origin", "present", "seen", "delay")}
    return replace(view, **late)


def found_readers(guessed: Guessed, run: str, attack: str) -> float:
    """The mean AUC of who reads what, whatever tokens were named."""
    reads = world().town.reads[honest()]
    return float(
        np.mean([auc(told(guessed[run, attack, EPOCHS, topic]), reads[:, at]) for at, topic in enumerate(ASKS)])
    )


def test_subscribers_are_found_by_constant_or_linked_tokens(guessed: Guessed) -> None:
    """The positive control."""
    assert found_readers(guessed, "kept", "token-frequency") > 0.7
    assert found_readers(guessed, "changing", "relinking") > 0.6


def test_random_names_find_no_subscribers(guessed: Guessed) -> None:
    """The null control: all ways to give the tokens other names."""
    reads = world().town.reads[honest()]
    scores = [told(guessed["kept", "token-frequency", EPOCHS, topic]) for topic in ASKS]
    wrong = [auc(scores[one], reads[:, other]) for one in range(TOPICS) for other in range(TOPICS) if one != other]
    assert np.mean(wrong) == pytest.approx(0.5, abs=0.06)


def test_tokens_that_change_are_followed_back_as_far_as_they_are_linked() -> None:
    town, traces = world("H")
    alive = np.zeros((EPOCHS, EPOCHS * TOPICS), np.bool_)
    for epoch in range(EPOCHS):
        alive[epoch, epoch * TOPICS : (epoch + 1) * TOPICS] = True
    nothing, nobody = np.empty(0, np.int64), np.empty(0, np.int32)
    heard = TokenViews(
        tuple(
            CoalitionObservations(
                town.topics[0].graph,
                town.topics[0].insiders,
                view.first_epochs(EPOCHS),
                view.stem_passages,
                HeardAdverts(nothing, nothing, nobody),
                HeardChains(nothing, nobody, []),
                notes,
            )
            for _ in range(EPOCHS)
            for view, notes in zip(traces.views, traces.notes.T, strict=True)
        ),
        alive,
    )
    right = np.arange(TOPICS)[:, None] + TOPICS * np.arange(EPOCHS)
    assert (track_by_surroundings(heard) == right).all()
    alone = np.full((TOPICS, EPOCHS), -1)
    alone[:, -1] = right[:, -1]
    assert (track_by_bytes(heard) == alone).all()


def test_more_tokens_than_topics_leave_some_without_a_name() -> None:
    assert assign_best(np.array([[1.0], [3.0], [2.0]])).tolist() == [-1, 0, -1]


def test_unknown_attacks_and_impossible_shares_are_refused() -> None:
    with pytest.raises(ConfigError, match="no attack on tokens is called 'wishing'"):
        guess_from_tokens(tables_of([]), ["wishing"])
    everybody: list[ObservationRow] = [PopularityRow("r", "a", 1.0), PresenceRow("r", 0, "n")]
    with pytest.raises(ConfigError, match="between none and all"):
        guess_from_tokens(tables_of(everybody))


def test_covers_are_expected_among_those_who_do_not_subscribe() -> None:
    rows: list[ObservationRow] = [PopularityRow("r", "a", 0.2), FactRow("r", "cover_share", 0.5)]
    given = tables_of(rows)
    united = union_tables(
        [
            RunTable("popularity", given["popularity"], {"word": "topic", "share": "share"}),
            RunTable("facts", given["facts"], {"word": "name", "share": "value"}),
        ]
    )
    assert token_job._share_of_askers(GroupedRun(united)) == pytest.approx({"a": 0.6})

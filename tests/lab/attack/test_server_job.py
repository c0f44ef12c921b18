"""The relay over frames: rows of `server` and `cells` give the scores of the arrays that they were made from."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from support.relay_users import run_small_relay as relay
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.server import batch_disclosure, linkage, spark_job, tag_inference
from veilcast.lab.models import prefix_tags
from veilcast.lab.models.relay import WINDOW_US, RelayObservations, RelayService, RelayTruth, RelayUsers
from veilcast.lab.models.server_log import DELIVERED, PUBLISHED, SENT, SUBSCRIBED, server_rows
from veilcast.lab.models.topic_mix import zipf_popularity
from veilcast.observe import CellRow, ObservationRow, PresenceRow, ServerRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

USERS, TOPICS, EPOCHS = 40, 8, 3
SHARES = zipf_popularity(TOPICS, 0.5)
NAMES = [f"u{number:02}" for number in range(USERS)]
RUNS = {"paper": RelayService("paper", batch=4), "hardened": RelayService("hardened", batch=4)}
Guessed = dict[tuple[str, str], float]
"""Scores by topic and node."""


@cache
def world(run: str) -> tuple[RelayUsers, RelayObservations, RelayTruth]:
    return relay(5, RUNS[run], EPOCHS, users=USERS, topics=TOPICS)


def frame(spark: SparkSession, row: type[ObservationRow], made: list[ObservationRow]) -> DataFrame:
    return spark.createDataFrame(tables.from_rows(row, made).to_pandas(), tables.spark_schema(row))


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> DataFrame:
    made: list[ObservationRow] = []
    for run in RUNS:
        shown = world(run)[1]
        made += server_rows(shown.server, run, "server", lambda who: f"{who:x}")
        made += server_rows(shown.proxy, run, "proxy", lambda who: NAMES[who])
    return frame(spark, ServerRow, made).cache()


@pytest.fixture(scope="module")
def cells(spark: SparkSession) -> DataFrame:
    made: list[ObservationRow] = []
    for run in RUNS:
        proxy = world(run)[1].proxy
        for kind in (SENT, DELIVERED):
            part = proxy.select(kind)
            for epoch, t_us, who in zip(part.epoch.tolist(), part.t_us.tolist(), part.who.tolist(), strict=True):
                src, dst = (NAMES[who], "proxy") if kind == SENT else ("proxy", NAMES[who])
                made.append(CellRow(run, epoch, t_us, src, dst, 500))
    return frame(spark, CellRow, made).cache()


@pytest.fixture(scope="module")
def words(spark: SparkSession) -> DataFrame:
    known = [
        (run, f"t{topic}", int(tag).to_bytes(8, "big"))
        for run in RUNS
        for topic, tag in enumerate(world(run)[2].computed)
    ]
    return spark.createDataFrame(known, "run string, topic string, tag binary").cache()


class Said:
    """All guesses of a frame, which is gone through once."""

    def __init__(self, guesses: DataFrame) -> None:
        self._rows = guesses.toArrow().to_pylist()
        assert all(list(row) == tables.spark_schema(tables.GuessRow).fieldNames() for row in self._rows)

    def of(self, run: str, attack: str) -> Guessed:
        chosen = [row for row in self._rows if (row["run"], row["attack"]) == (run, attack)]
        return {(row["topic"], row["node"]): row["score"] for row in chosen}


def scores(matrix: NDArray[np.float64], rows: list[str], columns: list[str]) -> Guessed:
    """Entries that are not 0, by row and column."""
    return {(rows[row], columns[column]): float(matrix[row, column]) for row, column in np.argwhere(matrix)}


def test_log_attacks_over_frames_give_the_results_of_arrays(server: DataFrame, words: DataFrame) -> None:
    popularity = {f"t{number}": float(share) for number, share in enumerate(SHARES)}
    for run, lasting in (("paper", True), ("hardened", False)):
        shown, answers = world(run)[1:]
        alone = server.where(server["run"] == run)
        guesses = Said(
            spark_job.guess_from_log(
                alone, attacks=spark_job.LOG_ATTACKS, popularity=popularity, users=USERS, lasting=lasting, words=words
            )
        )
        asked = shown.server.select(SUBSCRIBED)
        held = guesses.of(run, "dictionary")
        known = np.isin(asked.what, answers.computed)
        assert len(held) == (np.unique(asked.who[known]).size and known.sum())
        for observer, attack in ((shown.server, "tag-frequency"), (shown.proxy, "proxy-frequency")):
            expected: Guessed = {}
            for first, last in [(0, EPOCHS - 1)] if lasting else [(epoch, epoch) for epoch in range(EPOCHS)]:
                part = observer.select(SUBSCRIBED, first, last)
                names = tag_inference.name_tags(part, USERS * (last - first + 1.0), SHARES).topics_of(part.what)
                for who, name in zip(part.who.tolist(), names.tolist(), strict=True):
                    node = f"{who:x}" if observer is shown.server else NAMES[who]
                    if name >= 0:
                        expected[f"t{name}", node] = expected.get((f"t{name}", node), 0.0) + 1.0
            assert guesses.of(run, attack) == expected
        assert guesses.of(run, "bodies") == scores(linkage.link_bodies(shown.proxy, USERS), NAMES, NAMES)


def test_window_attacks_over_frames_give_the_results_of_arrays(server: DataFrame, cells: DataFrame) -> None:
    guesses = Said(
        spark_job.guess_from_windows(
            cells, server, proxy="proxy", window_us=WINDOW_US, attacks=spark_job.WINDOW_ATTACKS
        )
    )
    for run in RUNS:
        shown = world(run)[1]
        published = shown.server.select(PUBLISHED)
        place, busy = shown.windows(published), np.unique(shown.windows(published))
        place = np.searchsorted(busy, place)
        sent, got = shown.publishing.sent[busy], shown.publishing.got[busy]
        requests = [f"{who:x}" for who in published.who.tolist()]
        assert guesses.of(run, "timing") == pytest.approx(
            scores(batch_disclosure.spread_over_senders(sent, place), requests, NAMES)
        )
        found = guesses.of(run, "disclosure")
        expected = scores(batch_disclosure.fit_profiles(sent, got), NAMES, NAMES)
        assert {pair: score for pair, score in found.items() if score} == pytest.approx(expected, abs=1e-6)
        tag = np.unique(published.what, return_inverse=True)[1]
        usual = batch_disclosure.fit_profiles(
            sent, batch_disclosure.count_effects(place, tag, (busy.size, tag.max() + 1))
        )
        given = scores(batch_disclosure.match_senders(sent, place, tag, usual), requests, NAMES)
        same = guesses.of(run, "matching").items() & given.items()
        # Where several are equally likely either may be taken.
        assert len(same) > 0.8 * len(given)


def test_filter_attacks_over_frames_give_the_results_of_arrays(
    spark: SparkSession, server: DataFrame, words: DataFrame
) -> None:
    there = [
        PresenceRow(run, epoch, NAMES[user])
        for run in RUNS
        for epoch, user in np.argwhere(world(run)[1].present).tolist()
    ]
    presence = frame(spark, PresenceRow, [*there])
    guesses = Said(spark_job.guess_from_filters(server, presence, words=words, attacks=["filter-intersection"]))
    shown, answers = world("paper")[1:]
    tastes, counts, tags = linkage.group_by_filter(shown.server.select(SUBSCRIBED), EPOCHS)
    held = tastes @ (tags[:, None] == answers.computed) > 0
    expected = scores(
        (linkage.assign_users(counts, shown.present) @ held).T, [f"t{number}" for number in range(TOPICS)], NAMES
    )
    assert {pair: score for pair, score in guesses.of("paper", "filter-intersection").items() if score} == (
        pytest.approx(expected)
    )
    assert not any(guesses.of("hardened", "filter-intersection").values())


def test_values_are_sorted_over_frames_as_over_arrays(spark: SparkSession) -> None:
    drawn = prefix_tags.draw_prefix_tags(5, 30, 30, 0.3, 4)
    made: list[ObservationRow] = [
        ServerRow("r", 0, 0, f"server:{kind}", f"{kind}{number:02}", int(tag).to_bytes(8, "big"), 0)
        for kind, sets in (("publish", drawn.asked), ("subscribe", drawn.ranges))
        for number, tags in enumerate(sets)
        for tag in tags
    ]
    presence = spark.createDataFrame([], tables.spark_schema(PresenceRow))
    found = Said(spark_job.guess_from_filters(frame(spark, ServerRow, made), presence, attacks=["order"])).of(
        "r", "order"
    )
    place = np.array([found["", f"publish{number:02}"] for number in range(30)])
    expected = tag_inference.order_publications(drawn.asked, drawn.ranges)
    assert np.array_equal(place, expected) or abs(np.corrcoef(place, expected)[0, 1]) > 0.99


@pytest.mark.parametrize("attack", ["dictionary", "tag-frequency", "closure"])
def test_an_unknown_attack_or_one_without_its_input_is_refused(server: DataFrame, attack: str) -> None:
    with pytest.raises(ConfigError):
        spark_job.guess_from_log(server, attacks=[attack])
    with pytest.raises(ConfigError):
        spark_job.guess_from_windows(server, server, proxy="p", window_us=1, attacks=["closure"])
    with pytest.raises(ConfigError):
        spark_job.guess_from_filters(server, server, attacks=["filter-intersection"])

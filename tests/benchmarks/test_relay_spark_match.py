"""The benchmark of matching in bulk: tags say what ranges say, all ways agree, and a wrong count is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

import relay_spark_match
from relay_spark_match import MatchTiming
from veilcast.errors import LocalError
from veilcast.lab.models import bulk_filters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
PLAIN = MatchTiming(1_000, 1_000_000, "a dictionary, plain Python", 1.0, 1_000.0, 500, 1)


def pairs() -> set[tuple[int, int]]:
    """By definition."""
    subscribed, asked = relay_spark_match.draw_subscriptions(COUNT, 3), relay_spark_match.draw_publications(COUNT, 3)
    sets = [set(part.tolist()) for part in np.split(subscribed.tags, subscribed.offsets[1:-1])]
    return {
        (row, number) for row, tags in enumerate(asked) for number, held in enumerate(sets) if held & {*tags.tolist()}
    }


def test_a_dictionary_finds_what_shares_a_tag() -> None:
    assert (
        relay_spark_match.match_in_dictionary(
            relay_spark_match.draw_subscriptions(COUNT, 3), relay_spark_match.draw_publications(COUNT, 3)
        )
        == len(pairs())
        > COUNT
    )


def test_publications_come_sorted_so_that_neighbours_begin_alike() -> None:
    asked = relay_spark_match.draw_publications(2_000, 5)
    assert np.unique(asked[:, 0]).size == 5
    assert np.count_nonzero(np.diff(asked[:, 0])) == 4


def test_spark_finds_the_same_in_blocks_and_by_a_join(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_spark_match, "BLOCK_COLUMNS", 128)
    subscribed, asked = relay_spark_match.draw_subscriptions(COUNT, 3), relay_spark_match.draw_publications(COUNT, 3)
    relay_spark_match.write_blocks(tmp_path / "subscriptions", *subscribed)
    relay_spark_match.write_blocks(tmp_path / "publications", asked.reshape(-1), np.arange(COUNT + 1) * asked.shape[1])
    assert len(list((tmp_path / "subscriptions").iterdir())) == 3
    rows, published = (spark.read.parquet(f"file://{tmp_path / name}") for name in ("subscriptions", "publications"))
    for matched in (
        relay_spark_match.match_by_filters(spark, rows, asked),
        relay_spark_match.match_by_tags(rows, published),
    ):
        found = matched.toArrow().to_pylist()
        assert len(found) == len({(one["publication"], one["subscription"]) for one in found})
        assert {(one["publication"], one["subscription"]) for one in found} == pairs()


def test_a_match_that_is_missed_or_too_many_that_are_wrong_are_noticed() -> None:
    filters = msgspec.structs.replace(PLAIN, by="filters, Spark local[1]")
    relay_spark_match.check_matches(PLAIN, PLAIN)
    relay_spark_match.check_matches(msgspec.structs.replace(filters, matches=1_200), PLAIN)
    for wrong in (
        msgspec.structs.replace(PLAIN, matches=501),
        msgspec.structs.replace(filters, matches=499),
        msgspec.structs.replace(filters, matches=2_000),
    ):
        with pytest.raises(LocalError, match="500 are right"):
            relay_spark_match.check_matches(wrong, PLAIN)


def test_a_block_has_rows_of_sixteen_kilobytes() -> None:
    assert bulk_filters.BLOCK_COLUMNS // 8 == 16 * 1024

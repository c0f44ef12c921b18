"""Traces as text: interactions are read; other lines are counted, reported, and left out."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data, interaction_traces
from veilcast.lab.interaction_traces import NAMED_MAX, RefusedLine, parse

GOOD = b"sender,receiver,hours\n7,3,2.5\n3,7,0.5\n7,9,1.5\n"


def test_users_are_renumbered_and_interactions_come_by_sender_and_time() -> None:
    trace = parse(GOOD, "hours")
    assert trace.users == 3
    assert list(zip(trace.publisher, trace.subscriber, trace.hour, strict=True)) == [(0, 1, 0), (1, 2, 1), (1, 0, 2)]
    assert (trace.refused, trace.describe_refused()) == (0, "every line is one")


def test_stamps_are_hours_apart() -> None:
    trace = parse(b"Source,Target,Timestamp\n1,2,4/15/04 2:56 PM\n3,4,4/16/04 10:50 PM\n", "stamps")
    assert trace.hour.tolist() == pytest.approx([0, 31.9])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1,2", "2 fields, not 3"),
        (b"1,2,3,4", "4 fields, not 3"),
        (b"", "1 fields, not 3"),
        (b"x,2,3", "the sender is no user"),
        (b"1,-2,3", "the receiver is no user"),
        (b"1,9999999999999999999,3", "the receiver is no user"),
        (b"1,1,3", "sender and receiver are one"),
        (b"1,2,nan", "the time is none"),
        (b"1,2,1e400", "the time is none"),
        (b"1,2,\xff", "the time is none"),
        (b"1,2,4/15/04 2:56 PM", "the time is none"),
    ],
)
def test_a_line_that_is_none_is_named_and_kept_out(line: bytes, why: str) -> None:
    trace = parse(GOOD.replace(b"3,7,", line + b"\n3,7,"), "hours")
    assert (trace.publisher.size, trace.refused, trace.named) == (3, 1, (RefusedLine(3, why),))
    assert f"line 3: {why}" in trace.describe_refused()


def test_only_the_first_are_named_and_all_are_counted() -> None:
    trace = parse(GOOD + b"rubbish\n" * 100, "hours")
    assert (trace.refused, len(trace.named)) == (100, NAMED_MAX)
    assert trace.describe_refused().endswith("and 95 more")


@given(st.binary(max_size=200), st.sampled_from(["hours", "stamps"]))
def test_no_text_does_harm(text: bytes, clock: interaction_traces.Clock) -> None:
    trace = parse(b"heading\n" + text + b"\n1,2,3\n1,2,4/15/04 2:56 PM\n", clock)
    assert trace.publisher.size + trace.refused >= 2
    assert trace.publisher.max() < trace.users


def test_a_trace_without_interactions_is_none() -> None:
    with pytest.raises(ConfigError, match="no interaction"):
        parse(b"sender,receiver,hours\nrubbish\n", "hours")


def test_a_file_that_is_not_what_was_published_is_refused_with_the_lines_that_are_wrong(tmp_path: Path) -> None:
    place = tmp_path / data.TRACES["facebook"].name
    place.parent.mkdir()
    place.write_bytes(gzip.compress(GOOD + b"1,2\n"))
    with pytest.raises(StorageError, match=r"it has 3, and 1 lines are no interactions: line 5: 2 fields"):
        data.load_trace("facebook", tmp_path)
    with pytest.raises(ConfigError, match="--data"):
        data.load_trace("facebook", None)


@pytest.mark.skipif("VEILCAST_DATA" not in os.environ, reason="needs the data folder")
def test_the_published_traces_are_whole() -> None:
    folder = Path(os.environ["VEILCAST_DATA"])
    found = {name: data.load_trace(name, folder) for name in data.TRACES}
    assert {name: (trace.publisher.size, trace.users, trace.refused) for name, trace in found.items()} == {
        "facebook": (137_170, 3_582, 0),
        "college": (59_835, 1_899, 0),
    }
    assert data.file_digests(["facebook"], folder).keys() == {"social/fb_wall_2007.csv.gz"}

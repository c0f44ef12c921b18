"""The user's own files: each format is read, and each fault is told with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data, user_files
from veilcast.lab.user_files import load_edges, load_latencies, load_series, load_subscriptions


@pytest.fixture(autouse=True)
def no_cache() -> None:
    for load in (load_edges, load_latencies, load_series, load_subscriptions, data._load_own):
        load.cache_clear()


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def faults_of(error: pytest.ExceptionInfo[ConfigError], path: Path) -> list[str]:
    return [line.removeprefix(f"{path}, ") for line in str(error.value).split("\n")]


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1 2\n0 2\n",
        "# a comment\n\n% another\n2,1\n1,0\r\n0,2\n",
        "source,target\n1,2\n2,0\n1,0\n",
        "u\tv\tweight\n0\t1\t5\n0\t2\t5\n1\t2\t5\n",
        gzip.compress(b"0 1\n1 2\n0 2\n", mtime=0),
        "\ufeff0 1\n1 2\n0 2\n",
    ],
)
def test_edges_are_read_in_any_order_with_commas_spaces_comments_headings_and_packed(
    text: str | bytes, tmp_path: Path
) -> None:
    read = load_edges(write(tmp_path / "g", text))
    assert read.names == ("0", "1", "2")
    assert read.ends.tolist() == [[0, 1], [0, 2], [1, 2]]


def test_names_can_be_words_and_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    assert load_edges(write(tmp_path / "w", "bob alice\nalice 7\n")).names == ("7", "alice", "bob")
    assert load_edges(write(tmp_path / "n", "10 9\n9 100\n")).names == ("9", "10", "100")


def test_repeated_edges_and_loops_are_left_out_and_counted(tmp_path: Path) -> None:
    read = load_edges(write(tmp_path / "g", "0 1\n1 0\n0 0\n1 2\n0 1\n"))
    assert read.ends.tolist() == [[0, 1], [1, 2]]
    assert read.notes == (
        "3 nodes, 2 edges",
        "2 repeated edges were left out",
        "1 edges from a node to itself were left out",
    )


def test_all_faults_of_a_file_are_told_with_their_lines_and_none_hides_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "g", b"0 1\n1\n# fine\n2 3 4\n\xff\xfe 1\n5,\n1 2\n")
    with pytest.raises(ConfigError) as told:
        load_edges(path)
    assert faults_of(told, path) == [
        "line 2: 1 fields, and 2 in the lines before it",
        "line 4: 3 fields, and 2 in the lines before it",
        "line 5: it is no UTF-8 text",
        "line 6: a name is empty",
    ]
    path = write(tmp_path / "h", "0 1\n" + "1\n" * 30)
    with pytest.raises(ConfigError) as told:
        load_edges(path)
    found = faults_of(told, path)
    assert len(found) == user_files.FAULTS_MAX + 1
    assert "20 more lines are wrong" in found[-1]


def test_bounds_on_nodes_edges_lines_and_size_stop_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "g", "0 1\n1 2\n2 3\n3 4\n")
    for bound, many, line in (("NODES_MAX", 3, 3), ("EDGES_MAX", 3, 4), ("BYTES_MAX", 8, 3), ("LINE_MAX", 3, 1)):
        load_edges.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(user_files, bound, many)
            with pytest.raises(ConfigError, match=f"line {line}: .*(more|longer) than"):
                load_edges(path)
    bomb = write(tmp_path / "bomb", gzip.compress(b"# nothing\n" * 200_000))
    monkeypatch.setattr(user_files, "BYTES_MAX", 100_000)
    with pytest.raises(ConfigError, match="longer than 100,000 bytes"):
        load_edges(bomb)


def test_a_missing_a_damaged_and_an_empty_file_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"No such file.*relative to the experiment's file"):
        load_edges(tmp_path / "none")
    with pytest.raises(StorageError, match="packed, and damaged"):
        load_edges(write(tmp_path / "cut", gzip.compress(b"0 1\n" * 1000)[:-9]))
    with pytest.raises(ConfigError, match="no edge in it"):
        load_edges(write(tmp_path / "empty", "# nothing\n"))
    with pytest.raises(ConfigError, match="no edge in it"):
        load_edges(write(tmp_path / "loop", "3 3\n"))


def test_the_largest_component_is_taken_or_a_graph_of_several_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "g", "9 8\n0 1\n1 2\n2 3\n")
    overlay = data.load_user_overlay(path, None, "largest")
    assert [ends.tolist() for ends in overlay.graph.edges()] == [[0, 1, 2], [1, 2, 3]]
    assert "2 nodes outside its largest component were left out" in overlay.notes
    with pytest.raises(ConfigError, match=r"not connected: 2 of 6 nodes, such as 8, .*component = \"largest\""):
        data.load_user_overlay(path, None, "all")
    with pytest.raises(ConfigError, match="has 2 nodes; an overlay has 3"):
        data.load_user_overlay(write(tmp_path / "two", "0 1\n"), None, "largest")


def test_subscribers_are_nodes_of_the_graph_and_keep_their_topics(tmp_path: Path) -> None:
    edges = write(tmp_path / "g", "9 8\na 1\n1 2\n2 3\n")
    topics = write(tmp_path / "t", "node,topic\na,free jazz\n1,ska\n1,ska\n9,ska\n3,free jazz\n")
    overlay = data.load_user_overlay(edges, topics, "largest")
    assert {topic: users.tolist() for topic, users in overlay.topics.items()} == {"free jazz": [2, 3], "ska": [0]}
    assert overlay.notes[-1] == "1 repeated subscriptions were left out"
    bad = write(tmp_path / "b", "a,ska\n77,ska\n1\n2,\n")
    with pytest.raises(ConfigError) as told:
        load_subscriptions(bad, edges)
    assert faults_of(told, bad)[0].startswith(f"line 2: {edges} has no node '77'")
    assert [fault[:7] for fault in faults_of(told, bad)] == ["line 2:", "line 3:", "line 4:"]


def test_latencies_are_a_matrix_or_pairs_and_the_same_both_ways(tmp_path: Path) -> None:
    matrix = load_latencies(write(tmp_path / "m", "0 10 2.5\n10 0 7\n2.5 7 0\n")).round_trips_ms
    pairs = load_latencies(write(tmp_path / "p", "u,v,ms\n2,1,7\n0,1,10\n2,0,2.5\n")).round_trips_ms
    assert np.array_equal(matrix, pairs)
    for text, fault in (
        ("0 10\n11 0\n", "line 2: 11 ms in column 1, and 10 ms back"),
        ("1 10\n10 0\n", "line 1: 1 ms from a host to itself"),
        ("0 10 2\n10 0\n2 3 0\n", "line 2: 2 times, and there are 3 lines"),
        ("0 x\n1 0\n", "line 1: 'x' is no time in milliseconds"),
        ("0 -1\n-1 0\n", "line 1: '-1' is no time"),
        ("0 nan\nnan 0\n", "line 1: 'nan' is no time"),
        ("u,v,ms\n0,1,5\n1,0,6\n", "line 3: 6 ms between 0 and 1, and 5 ms in line 2"),
        ("u,v,ms\n0,1,5\n0,2,5\n", "no time between 1 and 2"),
        ("u,v,ms\n0,1,x\n", "line 2: it is no pair"),
        ("0 0\n0 0\n", "host 1 has no time above 0"),
        ("0\n", "one host"),
    ):
        load_latencies.cache_clear()
        with pytest.raises(ConfigError, match=fault):
            load_latencies(write(tmp_path / "bad", text))


def test_a_series_is_a_column_of_any_length_with_its_days_volume_and_unit(tmp_path: Path) -> None:
    path = write(tmp_path / "s", "day,name,watt,volume\nmo,a,1.50,3\nmo,b,2,4\n# pause\ntu,c,2.25,5\n")
    read = load_series(path, "")
    assert read.values.tolist() == [1.5, 2, 2.25]
    assert read.day is not None
    assert read.day.tolist() == [0, 0, 1]
    assert read.volume is not None
    assert read.volume.tolist() == [3, 4, 5]
    assert read.unit == 0.01
    assert load_series(write(tmp_path / "one", "5\n7\n6\n"), "").unit == 1.0
    assert load_series(write(tmp_path / "fine", "v\n0.123456789\n1\n"), "v").unit == 0.0
    for text, column, fault in (
        ("a,b\n1,2\n3,4\n", "", "name the column of the series; columns of numbers: a, b"),
        ("watt,b\n1,2\n3,4\n", "wat", "there is no column 'wat'; columns of numbers: watt, b.*watt"),
        ("a\n1\nx\n2\n\n1,5\n", "a", "line 3: 'x' in column a is no number\n.*line 6: 2 fields, and 1 columns"),
        ("day,a\nmo,1\ntu,2\nmo,3\n", "a", "line 4: day 'mo' comes again"),
        ("a\n1e999\n2\n", "a", "line 2: '1e999' in column a"),
        ("a\n1\n", "a", "there are 1 values"),
    ):
        load_series.cache_clear()
        with pytest.raises(ConfigError, match=fault):
            load_series(write(tmp_path / "bad", text), column)

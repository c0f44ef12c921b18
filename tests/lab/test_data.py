"""Loaders of the data folder: files are read and checked, and a missing one is reported in one line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data
from veilcast.lab.data import DataOverlay, EdgeFile, Files, SubscriptionFile, TimesFile, largest_component, load_overlay
from veilcast.lab.models.graph import from_edges

EDGES = b"a,b\n0,1\n1,2\n2,0\n3,4\n"
TOPICS = b'{"0": ["Pop"], "1": ["Pop", "Ska"], "2": [], "3": ["Ska"], "4": ["Pop"]}'
SMALL = Files(
    EdgeFile("edges.csv.gz", "somewhere", 5, 4, ",", 1), SubscriptionFile("topics.json.gz", "somewhere", 2, 5)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(data.FILES, "deezer", SMALL)
    write(tmp_path, EDGES, TOPICS)
    return tmp_path


def write(folder: Path, edges: bytes = EDGES, topics: bytes = TOPICS) -> None:
    (folder / "edges.csv.gz").write_bytes(gzip.compress(edges))
    (folder / "topics.json.gz").write_bytes(gzip.compress(topics))


def test_an_overlay_has_its_edges_and_its_subscriptions(folder: Path) -> None:
    overlay = load_overlay("deezer", folder)
    assert [ends.tolist() for ends in overlay.graph.edges()] == [[0, 0, 1, 3], [1, 2, 2, 4]]
    assert {topic: users.tolist() for topic, users in overlay.topics.items()} == {"Pop": [0, 1, 4], "Ska": [1, 3]}
    assert load_overlay("deezer", folder) is overlay


def test_a_publisher_is_in_the_largest_component_and_some_subscribers_may_not_be(folder: Path) -> None:
    overlay = load_overlay("deezer", folder)
    casts = [overlay.cast("Pop", 0.1, seed) for seed in range(20)]
    assert {publisher for publisher, _ in casts} == {2}
    assert casts[0][1].tolist() == [0, 1, 4]
    assert {overlay.cast("Ska", 0.1, seed)[0] for seed in range(40)} == {0, 2}


def test_without_a_topic_a_share_of_all_subscribes(folder: Path) -> None:
    for seed in range(20):
        publisher, subscribers = load_overlay("deezer", folder).cast("", 0.4, seed)
        assert publisher in (0, 1, 2)
        assert len(subscribers) == 2
        assert publisher not in subscribers


def test_all_missing_files_are_named_at_once_with_their_paths(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as told:
        data.require_files(["deezer", "planetlab", "small-world"], tmp_path)
    names = ["pubsub/deezer_ro_edges.csv.gz", "pubsub/deezer_ro_genres.json.gz", "topology/PlanetLabData_1.txt.gz"]
    assert str(told.value).startswith(f"{tmp_path} lacks 3 files: {names[0]} (get it from https://")
    assert all(name in str(told.value) for name in names)
    for name in names[1:]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(StorageError, match=r"deezer_ro_edges.csv.gz is not there; get it from https://"):
        data.require_files(["deezer", "planetlab"], tmp_path)
    data.require_files(["planetlab", "small-world"], tmp_path)


def test_a_file_that_was_changed_though_its_counts_were_not_has_another_digest(folder: Path) -> None:
    before = data.file_digests(["small-world", "deezer"], folder)
    assert list(before) == ["edges.csv.gz", "topics.json.gz"]
    write(folder, EDGES.replace(b"3,4", b"2,4"))
    after = data.file_digests(["deezer"], folder)
    assert [name for name in before if before[name] != after[name]] == ["edges.csv.gz"]
    assert data.file_digests(["small-world"], None) == {}
    with pytest.raises(ConfigError, match="deezer is read from a data folder"):
        data.file_digests(["deezer"], None)


def test_a_topic_without_subscribers_or_without_others_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no 'Polka' in the data; there are: Pop, Ska"):
        load_overlay("deezer", folder).cast("Polka", 0.1, 1)
    everybody = DataOverlay(from_edges(2, [0], [1]), {"air": np.arange(2, dtype=np.int32)})
    with pytest.raises(ConfigError, match="everybody subscribes to 'air'"):
        everybody.cast("air", 0.1, 1)


def test_no_folder_and_a_missing_file_are_told_with_what_to_do(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--data DIR, or in VEILCAST_DATA"):
        load_overlay("gnutella", None)
    (folder / "edges.csv.gz").unlink()
    with pytest.raises(StorageError, match=r"edges.csv.gz is not there; get it from somewhere") as told:
        load_overlay("deezer", folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("edges", "topics", "complaint"),
    [
        (EDGES[:-4], TOPICS, "does not have its 4 edges of 5 nodes"),
        (EDGES.replace(b"4", b"5"), TOPICS, "does not have its 4 edges of 5 nodes"),
        (EDGES.replace(b"0,1", b"0,-1"), TOPICS, "does not have its 4 edges of 5 nodes"),
        (EDGES.replace(b"3,4", b"3,x"), TOPICS, "is no list of edges"),
        (EDGES.replace(b"3,4", b"3,4,5"), TOPICS, "is no list of edges"),
        (EDGES, TOPICS[:-1], "is no table of users and topics"),
        (EDGES, b"[1]", "is no table of users and topics"),
        (EDGES, TOPICS.replace(b'"4"', b'"5"'), "does not have its 5 subscriptions of 5 users to 2 topics"),
        (EDGES, TOPICS.replace(b', "Ska"', b""), "does not have its 5 subscriptions of 5 users to 2 topics"),
    ],
)
def test_a_file_that_is_something_else_is_refused(folder: Path, edges: bytes, topics: bytes, complaint: str) -> None:
    write(folder, edges, topics)
    with pytest.raises(StorageError, match=complaint) as told:
        load_overlay("deezer", folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("damage", [slice(0, 9), slice(1, None), slice(0, -9)])
def test_a_file_that_is_damaged_is_refused(folder: Path, damage: slice) -> None:
    path = folder / "edges.csv.gz"
    path.write_bytes(path.read_bytes()[damage])
    with pytest.raises(StorageError, match=r"edges.csv.gz cannot be read"):
        load_overlay("deezer", folder)


@pytest.fixture
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "PLANETLAB", TimesFile("times.txt.gz", "somewhere", 2))
    return tmp_path


def test_round_trips_are_read_once_and_cannot_be_changed(times: Path) -> None:
    (times / "times.txt.gz").write_bytes(gzip.compress(b"0\t1.5\n1.5\t0\n"))
    found = data.load_round_trips(times)
    assert found.tolist() == [[0.0, 1.5], [1.5, 0.0]]
    assert data.load_round_trips(times) is found
    assert not found.flags.writeable
    assert list(data.file_digests(["planetlab"], times)) == ["times.txt.gz"]


@pytest.mark.parametrize(
    "text", [b"0 1\n", b"0 1\n2 0\n", b"0 -1\n-1 0\n", b"1 1\n1 1\n", b"0 nan\nnan 0\n", b"0 x\nx 0\n"]
)
def test_impossible_round_trips_are_refused(times: Path, text: bytes) -> None:
    (times / "times.txt.gz").write_bytes(gzip.compress(text))
    with pytest.raises(StorageError, match=r"times\.txt\.gz .*; get it from somewhere"):
        data.load_round_trips(times)


def test_the_largest_component_is_found() -> None:
    graph = from_edges(6, [0, 2, 3], [1, 3, 4])
    assert largest_component(graph).tolist() == [False, False, True, True, True, False]


@pytest.mark.skipif("VEILCAST_DATA" not in os.environ, reason="VEILCAST_DATA names no data folder")
def test_the_real_files_are_as_published() -> None:
    folder = Path(os.environ["VEILCAST_DATA"])
    gnutella, deezer = load_overlay("gnutella", folder), load_overlay("deezer", folder)
    assert (gnutella.graph.nodes, len(gnutella.graph.edges()[0]), largest_component(gnutella.graph).sum()) == (
        6301,
        20777,
        6299,
    )
    assert (deezer.graph.nodes, len(deezer.graph.edges()[0]), largest_component(deezer.graph).sum()) == (
        41773,
        125826,
        41773,
    )
    assert len(deezer.topics["Pop"]) == 33420

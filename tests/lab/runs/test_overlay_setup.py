"""Runs on overlays of every kind, real ones among them, and games that are counted for each node of the mesh."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data
from veilcast.lab.data import EdgeFile, Files, SubscriptionFile
from veilcast.lab.experiment import definition
from veilcast.lab.experiment.mesh_params import MeshFlows, OverlayParams
from veilcast.lab.measure.accuracy import RunTruth, measure_guess
from veilcast.lab.models.graph import small_world
from veilcast.lab.runs.mesh.flows_model import run
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay


def values(params: MeshFlows, seed: int, folder: Path | None = None) -> dict[tuple[str, str, float], float]:
    return {(found.attack, found.metric, found.step): found.value for found in run(params, seed, folder)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small world of 60 users, and two more who know only one another; every third likes Ska."""
    u, v = small_world(60, 4, 0.2, 1).edges()
    edges = "a,b\n" + "".join(f"{a},{b}\n" for a, b in zip(u, v, strict=True)) + "60,61\n"
    users = ", ".join(f'"{user}": {["Ska"] if user % 3 == 0 else []}' for user in range(62)).replace("'", '"')
    for name, text in (("edges.gz", edges), ("topics.gz", "{" + users + "}")):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    files = Files(EdgeFile("edges.gz", "here", 62, 121, ",", 1), SubscriptionFile("topics.gz", "here", 1, 21))
    monkeypatch.setitem(data.FILES, "deezer", files)
    return tmp_path


def test_a_topic_of_the_data_is_read_by_its_readers_and_those_who_cannot_be_reached_are_reported(folder: Path) -> None:
    params = MeshFlows(graph="deezer", topic="Ska")
    for seed in range(5):
        graph, publisher, subscribers = draw_overlay(params, seed, folder)
        assert subscribers.tolist() == list(range(0, 62, 3))
        assert publisher < 60
        assert publisher % 3
        found = values(params, seed, folder)
        assert found["", "reached", 0] == pytest.approx(20 / 21)
        assert found["leaf", "accuracy_all", 0] <= 61 / 62
        assert graph.nodes == 62


def test_a_real_overlay_without_its_folder_or_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data DIR"):
        run(MeshFlows(graph="gnutella"), 1)
    with pytest.raises(StorageError, match="is not there; get it from https://snap"):
        run(MeshFlows(graph="gnutella"), 1, tmp_path)


def test_a_topic_is_for_an_overlay_that_has_topics() -> None:
    with pytest.raises(ConfigError, match='topic is for graph = "deezer"'):
        MeshFlows(topic="Ska")


@pytest.mark.parametrize("graph", ["scamp", "regular", "scale-free"])
def test_every_kind_of_overlay_has_a_mesh_that_reaches_everybody(graph: str) -> None:
    params = MeshFlows(graph=graph, nodes=200)
    found = values(params, 1)
    assert found["", "reached", 0] == 1
    assert found["leaf", "leaf_precision", 0] == 1


def test_rounds_are_swaps_for_each_node_of_the_mesh() -> None:
    base = MeshFlows(nodes=300, game="swaps", look="rounds", steps=(0, 1, 2.5))
    found = values(base, 3)
    size = found["", "overlay", 0]
    assert [found["", "swaps", step] for step in base.steps] == [0, size, round(2.5 * size)]
    assert found["leaf", "residual", 0] == 1
    with pytest.raises(ConfigError, match="not for a shell game with waits"):
        run(MeshFlows(game="events", look="rounds", steps=(1,), decay=0.05), 1)


def test_what_is_left_falls_to_nothing_as_in_the_notes_whatever_the_size() -> None:
    """notes: after 1, 2, 4, 8 games for each node .33, .18, .085, .039."""
    found = values(MeshFlows(nodes=200_000, game="swaps", look="rounds", steps=(1, 2, 4, 8)), 1)
    left = [found["leaf", "residual", step] for step in (1, 2, 4, 8)]
    assert left == pytest.approx([0.33, 0.18, 0.085, 0.039], abs=0.015)


def test_the_residual_is_none_where_leaves_tell_nothing_and_all_where_they_tell_everything() -> None:
    truth = RunTruth(0, np.array([False, True, True, False, False]))
    members = np.ones(5, np.bool_)

    def residual(*named: int) -> float:
        return measure_guess(truth, members, np.isin(np.arange(5), named))["residual"]

    assert residual(1, 2) == 1
    assert residual(1, 3) == 0
    assert residual(3, 4) == -1


def test_a_part_of_the_data_is_a_connected_neighbourhood_whose_users_keep_what_they_like(folder: Path) -> None:
    params = MeshFlows(graph="deezer", topic="Ska", sample=30)
    sizes = []
    for seed in range(8):
        graph, publisher, subscribers = draw_overlay(params, seed, folder)
        assert graph.nodes == 30
        assert data.largest_component(graph).all()
        assert publisher not in subscribers
        sizes.append(subscribers.size)
    assert len({tuple(draw_overlay(params, seed, folder)[2]) for seed in range(8)}) > 1, "drawn for each run"
    assert np.mean(sizes) == pytest.approx(10, abs=3), "a third, as of all"


def test_a_sample_is_of_an_overlay_that_is_read() -> None:
    for wrong in ({"sample": 30}, {"graph": "deezer", "sample": 2}, {"links_max": -1}):
        with pytest.raises(ConfigError, match="sample"):
            msgspec.convert(wrong, MeshFlows)


def test_hubs_lose_links_and_others_none_if_a_bound_is_set() -> None:
    params = MeshFlows(graph="scale-free", nodes=200, degree=6)
    whole, publisher, subscribers = draw_overlay(params, 1, None)
    bound, publishes, reads = draw_overlay(msgspec.structs.replace(params, links_max=20), 1, None)
    assert whole.degrees.max() > 20 == bound.degrees.max()
    assert (publishes, reads.tolist()) == (publisher, subscribers.tolist())


@pytest.mark.parametrize("name", ["mesh-overlays", "mesh-gnutella", "mesh-deezer", "mesh-million", "mesh-hardened"])
def test_experiments_of_our_own_are_quickly_tried(name: str) -> None:
    _, found = definition.load_experiment(name)
    assert found.quick.seeds < found.seeds
    cells = [cell.params for cell in found.make_cells(quick=True)]
    assert all(isinstance(params, OverlayParams) and params.nodes <= 10_000 for params in cells)

"""Captures of the machines with their links: the paper's network is read like a book, the hardened one is all alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.registry import ACTIVITY, WAVES
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.experiment.plan import SEEDS_MAX
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.models.graph import from_edges
from veilcast.lab.runs.mesh import wires_machines
from veilcast.lab.runs.mesh.wire_attackers import ATTACKER_COUNT, WireCapture, score_roles
from veilcast.lab.runs.table import list_kept_tables
from veilcast.sim.mesh.population import TOPIC

PAPER = MeshWires(nodes=16, ratio=0.25, publications=6, wire="prompt")
HARDENED = MeshWires(nodes=16, ratio=0.25, publications=6, wire="cells", kappa=0.78, publishers=3)


Found = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def runs() -> dict[str, Found]:
    """A run of each, after a short training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wires_machines, "_TRAINED_ON", 2)
        return {
            name: {(each.attack, each.metric): each.value for each in wires_machines.run(params, 1)}
            for name, params in (("paper", PAPER), ("hardened", HARDENED))
        }


def test_on_the_papers_wires_readers_and_publisher_are_found(runs: dict[str, Found]) -> None:
    found = runs["paper"]
    assert found["", "delivered"] == 1
    assert found["flow-source", "auc_publisher"] == 1
    assert min(found[attack, "auc"] for attack in ("leaf", "closure", "persistence")) > 0.85
    assert found["", "nn_error"] < 0.3


def test_hardened_wires_have_one_size_and_every_attacker_says_something(runs: dict[str, Found]) -> None:
    found = runs["hardened"]
    assert len([metric for _, metric in found if metric.startswith("auc")]) == ATTACKER_COUNT == 22
    assert found["", "sizes"] == 1
    assert found["", "delivered"] > 0.9
    assert found["", "base"] == pytest.approx(4 / 13)
    assert found["", "base_publisher"] == pytest.approx(3 / 16)


def test_no_run_has_a_seed_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires_machines, "take_capture", lambda _, seed: (seed, None, 1.0))
    seeds: Any = [seed for seed, _ in wires_machines._examples.__wrapped__(PAPER)]
    assert len(set(seeds)) == wires_machines._TRAINED_ON
    assert min(seeds) >= SEEDS_MAX


def test_publishers_come_from_anywhere() -> None:
    people = wires_machines._population(HARDENED)
    drawn = {address for seed in range(40) for address in people.draw_roles(seed)["mesh"]}
    assert drawn == set(people.addresses())


@pytest.mark.parametrize(
    "wrong",
    [
        {"wire": "cells"},
        {"wire": "prompt", "kappa": 0.5},
        {"wire": "prompt", "cover": "one"},
        {"wire": "prompt", "graph": "scale-free"},
    ],
)
def test_what_is_not_captured_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        make_params("mesh.wires", wrong)


def test_the_experiment_asks_for_what_runs_give(runs: dict[str, Found]) -> None:
    _, experiment = load_experiment("mesh-outside")
    assert experiment.engines == ("machines",)
    assert experiment.default_seeds("machines") >= 300
    for cell in experiment.make_cells(engine="machines"):
        given = runs[cell.series].keys()
        curves = [curve for figure in experiment.figures for curve in figure.curves if curve.series == cell.series]
        assert {(curve.attack, curve.metric) for curve in curves} <= given
        assert {(attack, matrix.metric) for matrix in experiment.matrices for attack in matrix.attacks} <= given


def constant(odd: int) -> WireCapture:
    """A ring of three, a cell every 100 ms; after the note, and only then, one link carries a few more."""
    beats = np.arange(0, 20_000_000, 100_000)
    src, dst = np.repeat([0, 1, 2], len(beats)), np.repeat([1, 2, 0], len(beats))
    extra = 10_000_000 + np.arange(odd) * 1000 + 500
    t_us = np.concatenate([np.tile(beats, 3), extra])
    order = np.argsort(t_us, kind="stable")
    from_, to = (np.append(each, np.full(odd, end))[order].astype(np.int32) for each, end in ((src, 0), (dst, 1)))
    graph = from_edges(3, [0, 1, 2], [1, 2, 0])
    size, published = np.full(len(t_us), 1200), np.array([10_000_000])
    return WireCapture(t_us[order], from_, to, size, graph, 0.3, published, 250_000, 6_000_000)


def test_where_no_size_stands_out_links_that_carried_more_after_a_note_are_shown() -> None:
    _, names, _, seen = capture_job.observe_tables(constant(odd=3).tables, {WAVES, ACTIVITY})
    assert names == ["0", "1", "2"]
    assert (seen.src.tolist(), seen.dst.tolist()) == ([0], [1])
    assert seen.epoch.tolist() == [1]
    assert seen.busy[:, 0].tolist() == [number == 40 for number in range(80)]
    assert not len(capture_job.observe_tables(constant(odd=0).tables, {WAVES}).seen.at)


def test_two_publications_at_once_and_one_soon_after_show_a_cell_once() -> None:
    capture = constant(odd=3)
    again = replace(capture, published=np.array([10_000_000, 10_000_000, 10_000_300]))
    assert capture_job.observe_tables(again.tables, {WAVES}).seen.at.tolist() == [10_000_000, 10_000_500]


def test_a_kept_run_can_be_attacked_again() -> None:
    """What a recorder keeps of a run gives the guesses of the run, and its truth has the roles."""
    capture, truth, _ = wires_machines.take_capture(PAPER, 1)
    parts: dict[str, list[pa.Table]] = {name: [] for name in list_kept_tables("mesh.wires", "machines")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wires_machines, "_TRAINED_ON", 2)
        recorder = TableRecorder("run 1", {name: part.append for name, part in parts.items()})
        wires_machines.run(PAPER, 1, None, recorder)
    kept = {name: pa.concat_tables(part) for name, part in parts.items()}
    guesses = capture_job.guess_from_captures(kept).to_pylist()
    assert {row["run"] for row in guesses} == {"run 1"}
    for (attack, role), scores in score_roles(capture_job.guess_from_captures(capture.tables)).items():
        found = {row["node"]: row["score"] for row in guesses if (row["attack"], row["role"]) == (attack, role)}
        assert [found[node] for node in sorted(found)] == scores.tolist()
    publishers = kept["truth"].filter(pa.compute.equal(kept["truth"]["role"], "publisher"))["node"].to_pylist()
    assert [int(node) for node in publishers] == np.flatnonzero(truth.publishes).tolist()


def test_publishers_are_drawn_from_all_nodes_as_readers_are() -> None:
    """An attacker that names nodes by their addresses must not find publishers; chance is a half."""
    mesh = wires_machines._population(HARDENED)
    places = {address: place for place, address in enumerate(mesh.addresses())}
    found = [
        places[address]
        for seed in range(60)
        for address, role in mesh.draw_roles(seed)[TOPIC].items()
        if role == "publisher"
    ]
    assert len(found) == 180
    assert abs(np.mean(found) - 7.5) < 1.1  # Three standard deviations of the mean of drawn places.

"""Days of towns: what is made of a made-up one, and a short one on real sockets."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.measure.permutation_test import judge_classifier
from veilcast.lab.runs.mesh.loopback_network import exclusive_addresses
from veilcast.lab.runs.mesh.traffic_day import PHASE_US, SLOT_US, TrafficDay, plan_phases, run_day
from veilcast.lab.runs.mesh.wires_live import (
    PHASE_KINDS,
    _make_capture,
    make_population,
    measure_day,
    sample_bursts,
    select_phases,
)
from veilcast.sim.engine import START_US
from veilcast.sim.rng import derive_rng

HARDENED = MeshWires(nodes=8, ratio=0.25, wire="cells", kappa=0.78)


def made_up(phases: int, works: float, seed: int = 1) -> TrafficDay:
    """A ring of six; in phases of publishing some cells are late."""
    rng, planned = np.random.default_rng(seed), plan_phases(phases, derive_rng(seed, "phases"))
    slots = np.arange(START_US, START_US + planned[-1].start_us + SLOT_US, 62_500)
    src, dst = np.repeat(np.arange(6), len(slots)), np.repeat(np.roll(np.arange(6), 1), len(slots))
    t_us = np.tile(slots, 6) + rng.integers(8_000, size=len(src))
    for phase in planned:
        inside = (t_us >= START_US + phase.start_us) & (t_us < START_US + phase.start_us + PHASE_US)
        t_us += np.where(inside & (phase.kind == "publishing"), (works * rng.random(len(src))).astype(np.int64), 0)
    order = np.argsort(t_us)
    return TrafficDay(
        planned, t_us[order], src[order].astype(np.int32), dst[order].astype(np.int32), np.full(len(src), 1200), 1.0
    )


def test_every_node_has_a_sample_for_every_quarter_of_a_phase() -> None:
    seen = made_up(8, 0)
    samples, kinds = sample_bursts(seen, first=100)
    assert len(kinds) == len(samples.labels) == 8 * 4 * 6
    assert np.unique(samples.phases).tolist() == list(range(100, 108))
    assert [kinds[samples.phases == 100 + number][0] for number in range(8)] == [each.kind for each in seen.phases]
    assert ((kinds != "idle") == samples.labels).all()


def test_what_happens_is_told() -> None:
    samples, kinds = sample_bursts(made_up(64, 20_000.0))
    verdict = judge_classifier(select_phases(samples, kinds, "publishing"), 2)
    assert verdict.area > 0.8 > verdict.high


def test_nothing_is_told_where_nothing_happens_but_for_one_in_twenty() -> None:
    days = [sample_bursts(made_up(64, 0.0, seed)) for seed in range(1, 7)]
    verdicts = [judge_classifier(select_phases(*each, "publishing"), 2) for each in days]
    assert sum(verdict.is_silent for verdict in verdicts) >= 5
    assert max(abs(verdict.area - 0.5) for verdict in verdicts) < 0.1


def test_idle_phases_are_held_against_one_kind_or_all() -> None:
    samples, kinds = sample_bursts(made_up(8, 0))
    assert len(select_phases(samples, kinds, "anything").labels) == len(kinds)
    assert len(select_phases(samples, kinds, "edge").labels) == np.count_nonzero((kinds == "idle") | (kinds == "edge"))


@pytest.mark.parametrize("change", [{"wire": "prompt"}, {"kappa": 0.0}, {"publishers": 2}])
def test_what_no_town_can_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        make_population(msgspec.structs.replace(HARDENED, **change))


def test_the_experiment_runs_on_real_sockets_alone() -> None:
    _, experiment = load_experiment("mesh-silence")
    assert experiment.engines == ("live",)
    for cell in experiment.make_cells(engine="live"):
        assert isinstance(cell.params, MeshWires)
        make_population(cell.params)


def test_the_experiment_draws_what_days_give_and_its_intervals_hold_for_all_attackers() -> None:
    _, experiment = load_experiment("mesh-silence")
    people = make_population(msgspec.structs.replace(HARDENED, nodes=6, ratio=0.34))
    given = {(found.attack, found.metric) for found in measure_day(people, made_up(16, 0.0), 1)}
    drawn = {(curve.attack, curve.metric) for figure in experiment.figures for curve in figure.curves}
    roles = {(attack, metric) for attack, metric in given if metric.startswith("auc")}
    assert drawn == roles | {("cadence", f"busy_{kind}") for kind in (*PHASE_KINDS, "anything")}
    assert drawn <= given
    hidden = [each for each in experiment.stated if each.compare == "not told from"]
    assert {(each.figure, each.curve) for each in hidden} == {
        ("hardened-readers" if metric == "auc" else "hardened-publishers", attack) for attack, metric in roles
    }
    assert {each.among for each in hidden} == {len(roles)}


@pytest.mark.all_only
def test_a_short_day_on_real_sockets_has_cells_of_one_size_and_notes_that_come() -> None:
    people = make_population(HARDENED)
    with exclusive_addresses():
        seen = run_day(people, 1, 4)
    assert np.unique(seen.size).tolist() == [1200]
    assert seen.delivered > 0.9
    capture, truth = _make_capture(people, seen, 1)
    assert np.count_nonzero(truth.subscribes) == 2
    assert (np.diff(capture.t_us) >= 0).all()
    assert capture.graph.nodes == 8

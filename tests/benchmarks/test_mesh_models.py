"""The benchmark compares like with like, says what it could not compare, and gives all of it as data."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import mesh_models
from measurement import stopwatch
from mesh_model_peers import model_sizes, peers, run_rates, sweep_rates
from mesh_model_peers.peers import MeshOutcome, PeerModel, Setting
from mesh_model_peers.sweep_rates import SweepTiming
from veilcast.errors import LocalError
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import build_mesh, draw_roles


def every_peer() -> list[PeerModel]:
    found = peers.networkx()
    return [peers.plain_python()] + ([found] if isinstance(found, PeerModel) else [])


@pytest.mark.parametrize("peer", every_peer(), ids=lambda peer: peer.name)
def test_a_peer_gives_what_the_kernels_give(peer: PeerModel) -> None:
    ours = [run_rates._kernels(seed) for seed in range(100)]
    run_rates.check_peer(peer, ours, [peer.run(run_rates.SETTING, seed) for seed in range(100)])
    planted = Setting(mu=0.5)
    with pytest.raises(LocalError, match=peer.name):
        run_rates.check_peer(peer, ours, [peer.run(planted, seed) for seed in range(100)])


def test_a_peer_that_gives_one_number_whatever_the_seed_is_not_let_through() -> None:
    constant = PeerModel("constant", lambda setting, seed: MeshOutcome(100, 0.5), peers.plain_python().game)
    told = [constant.run(run_rates.SETTING, seed) for seed in range(3)]
    run_rates.check_peer(constant, told, told)
    with pytest.raises(LocalError, match="constant"):
        run_rates.check_peer(constant, [MeshOutcome(101, 0.5)] * 3, told)


@pytest.mark.parametrize("peer", every_peer(), ids=lambda peer: peer.name)
def test_a_peer_s_game_goes_on_and_loses_nobody(peer: PeerModel) -> None:
    play = peer.game(Setting(nodes=100), 1)
    before = dict(play(0))
    after = play(50)
    assert sorted(after.values()) == sorted(before)
    assert after != before


def test_the_engine_and_the_kernels_agree_run_by_run() -> None:
    assert np.allclose([run_rates._engine(seed) for seed in range(5)], [run_rates._kernels(seed) for seed in range(5)])


def test_a_peer_that_loses_somebody_in_a_game_is_refused() -> None:
    broken = PeerModel(
        "broken", lambda setting, seed: MeshOutcome(1, 1.0), lambda setting, seed: lambda swaps: {1: 2, 2: 2}
    )
    with pytest.raises(LocalError, match="broken has lost somebody"):
        run_rates.measure_games([broken], 10, 1)


def test_the_best_round_of_each_counts_and_they_take_turns() -> None:
    now, order = [0.0], ""

    def work(name: str, seconds: list[float]) -> None:
        nonlocal order
        order += name
        now[0] += seconds.pop(0)

    one, other = [3.0, 1.0, 2.0], [5.0, 6.0, 4.0]
    found = stopwatch.race_times({"a": lambda: work("a", one), "b": lambda: work("b", other)}, 3, lambda: now[0])
    assert order == "ababab"
    assert found == {"a": 1.0, "b": 4.0}


@pytest.mark.all_only
def test_all_is_told_and_given_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    monkeypatch.setattr(mesh_models, "_QUICK_SIZES", (1_000,))
    monkeypatch.setattr(model_sizes, "_SWAPS", 2_000)
    monkeypatch.setattr(
        sweep_rates, "measure_sweeps", lambda cores, seeds: SweepTiming(cores, 1.5, dict.fromkeys(seeds, 100.0 * cores))
    )
    lines: list[str] = []
    data = mesh_models.run(True, lines.append)
    assert data["growth"][0]["nodes"] == 1_000
    assert set(data["runs"]) == {run_rates.KERNELS, run_rates.ENGINE, "plain Python", "veilcast on Spark, local[2]"}
    assert set(data["swaps"]) == {run_rates.KERNELS, "plain Python"}
    assert data["sweeps"] == [{"cores": 2, "ready_s": 1.5, "rates": {"500": 200.0, "20000": 200.0}}]
    assert data["missing"] == ["networkx is not installed"]
    told = "\n".join(lines)
    assert all(
        name in told
        for name in (*data["runs"], "networkx is not installed", "1.0 x plain Python", "after 1.5 s", "200 (1.00 x)")
    )


def test_a_mesh_that_is_too_large_is_noticed() -> None:
    graph = small_world(1_000, 4, 0.2, 1)
    with pytest.raises(LocalError, match="none that P0's rules give"):
        model_sizes._check_mesh(1_000, build_mesh(graph, *draw_roles(graph, 0.5, 1), 1))


@pytest.mark.all_only
@pytest.mark.heavy
def test_a_sweep_is_timed_apart_from_spark_s_start() -> None:
    found = sweep_rates.measure_sweeps(2, {100: 1})
    assert found.ready_s > 0
    assert found.rates[100] > 0

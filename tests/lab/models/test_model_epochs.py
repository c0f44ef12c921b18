"""Epochs: who is away, what is kept and what is drawn anew; recruiting, held against the machines."""

from __future__ import annotations

from math import sqrt
from statistics import mean, stdev

import numpy as np
import pytest

from support.small_population import make_population
from veilcast.errors import ConfigError
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.epochs import (
    ACCEPTED,
    MESH_POLICIES,
    REFUSED,
    MeshPolicy,
    Population,
    find_forwarders,
    run_epochs,
)
from veilcast.lab.models.graph import restrict_graph, small_world
from veilcast.lab.models.mesh import build_mesh
from veilcast.mesh.config import CoverConfig, MeshConfig
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World

PERIOD_US = 1_000_000


def people(seed: int, nodes: int = 300, insiders: float = 0.1, churn: float = 0.1) -> Population:
    return make_population(nodes, 4, insiders, churn, seed)


def test_insiders_publishers_and_roots_are_always_there_and_a_tenth_of_the_others_is_not() -> None:
    folk = people(1, nodes=1_000)
    there = np.array([epoch.present for epoch in run_epochs(folk, MESH_POLICIES["H"], 20)])
    assert there[:, folk.insiders].all()
    assert there[:, folk.publisher].all()
    assert there[:, ~folk.insiders].mean() == pytest.approx(0.9, abs=0.01)
    assert (there[0] != there[1]).any()


def test_a_population_has_its_shares_and_nobody_two_roles() -> None:
    folk = people(2)
    assert (folk.subscribers.size, folk.insiders.sum()) == (30, 30)
    assert not folk.insiders[folk.subscribers].any()
    assert not folk.insiders[folk.publisher]
    with pytest.raises(ConfigError, match="no 285 nodes left"):
        people(2, insiders=0.95)


def test_who_is_away_has_no_links_and_all_others_keep_theirs() -> None:
    graph = small_world(50, 4, 0.2, 1)
    there = np.ones(50, np.bool_)
    there[[3, 4, 20]] = False
    left = restrict_graph(graph, there)
    u, v = graph.edges()
    kept = there[u] & there[v]
    assert [ends.tolist() for ends in left.edges()] == [u[kept].tolist(), v[kept].tolist()]


@pytest.mark.parametrize("name", MESH_POLICIES)
def test_every_mesh_is_a_tree_of_those_who_are_there_and_holds_all_whom_the_flood_reaches(name: str) -> None:
    folk = people(3)
    for epoch in run_epochs(folk, MESH_POLICIES[name], 4):
        for mesh in (epoch.mesh, epoch.covered_mesh):
            assert epoch.present[mesh.members].all()
            steps = mesh.members
            for _ in range(mesh.members.size):
                steps = mesh.parent[steps]
            assert (steps == mesh.publisher).all()
        wanted = np.flatnonzero(epoch.asking & (epoch.mesh.distance >= 0))
        assert (epoch.mesh.parent[wanted] >= 0).all()
        # Only who asks is a leaf.
        assert epoch.asking[np.flatnonzero((epoch.mesh.parent >= 0) & ~find_forwarders(epoch.mesh))].all()


def test_the_same_seed_gives_the_same_epochs_and_another_does_not() -> None:
    once, again, other = (
        [epoch.covered_mesh.parent.tolist() for epoch in run_epochs(people(seed), MESH_POLICIES["PF fresh"], 3)]
        for seed in (5, 5, 6)
    )
    assert once == again
    assert once != other


def test_who_has_forwarded_asks_once_more_and_then_leaves_if_nobody_needs_it() -> None:
    conduct = MeshPolicy(origin="elected", parents="kept", relays="stay")
    before = None
    stayed = 0
    for epoch in run_epochs(people(7), conduct, 6):
        if before is not None:
            relays = find_forwarders(before.mesh) & epoch.present & (epoch.mesh.distance >= 0)
            assert (epoch.mesh.parent[relays] >= 0).all()
            stayed += int(np.count_nonzero(relays & ~find_forwarders(epoch.mesh)))
        before = epoch
    assert stayed > 0


def test_meshes_are_as_large_as_those_of_the_plain_kernels() -> None:
    mine: list[tuple[int, int]] = []
    plain: list[tuple[int, int]] = []
    for seed in range(60):
        folk = people(seed, nodes=500, insiders=0, churn=0)
        (epoch,) = run_epochs(folk, MESH_POLICIES["PF fresh"], 1)
        mine.append((epoch.mesh.members.size, epoch.covered_mesh.members.size))
        mesh = build_mesh(folk.graph, folk.publisher, folk.subscribers, seed)
        plain.append((mesh.members.size, add_covers(folk.graph, mesh, 0.6, seed).members.size))
    for ours, theirs in zip(zip(*mine, strict=True), zip(*plain, strict=True), strict=True):
        assert abs(mean(ours) - mean(theirs)) < 3 * sqrt((stdev(ours) ** 2 + stdev(theirs) ** 2) / 60)


def test_as_many_are_invited_and_refuse_as_with_the_machines() -> None:
    modelled: list[tuple[int, int]] = []
    for seed in range(100):
        (epoch,) = run_epochs(people(seed, nodes=100, insiders=0, churn=0), MeshPolicy(mu=0.8), 1)
        modelled.append((int(np.sum(epoch.invited == ACCEPTED)), int(np.sum(epoch.invited == REFUSED))))
    real: list[tuple[int, int]] = []
    config = MeshConfig(neighbours_max=20, address_bytes_max=8, cover=CoverConfig("one", 0.8, 12 * PERIOD_US))
    for seed in range(3):
        village = MeshPopulation(100, 4, 0.2, 0.1, notes=0, mesh=config, checks=())
        world = World(seed=seed, links=LinkDelays(latency_us=(10_000, 20_000)))
        village.populate(world, 0)
        world.run(60 * PERIOD_US)
        sent = village.facts(world)
        real.append((sent["Invite"] - sent["Decline"], sent["Decline"]))
    for ours, theirs in zip(zip(*modelled, strict=True), zip(*real, strict=True), strict=True):
        assert abs(mean(ours) - mean(theirs)) < 3 * stdev(ours) * sqrt(1 / len(real) + 1 / len(modelled))


def test_recruits_that_are_kept_are_asked_first_in_every_epoch() -> None:
    def stable(conduct: MeshPolicy) -> float:
        first, second = run_epochs(people(4, churn=0), conduct, 2)
        old, new = (np.flatnonzero(epoch.invited == ACCEPTED) for epoch in (first, second))
        return len(np.intersect1d(old, new)) / len(old)

    kept = MeshPolicy(parents="kept", mu=0.6, recruits="kept")
    assert stable(kept) > 2 * stable(MeshPolicy(parents="kept", mu=0.6))


@pytest.mark.parametrize("wrong", [{"kappa": 1.1}, {"mu": -0.1}, {"life": -1}, {"games": -1.0}])
def test_a_conduct_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        MeshPolicy(**wrong)  # type: ignore[arg-type]

"""The population of secret forwarding: its machines, its Byzantine replicas, and the results of its scenarios."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support.frame_adversaries import ScriptedPeer
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim import scenario
from veilcast.sim.brokers import soak
from veilcast.sim.brokers.adversaries import BEHAVIOURS, ByzantineBroker
from veilcast.sim.brokers.checkers import LiarsNamed
from veilcast.sim.brokers.population import BrokersPopulation, operator_key
from veilcast.sim.checkers import ViolationError
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import World


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"nodes": 0}, "nodes"),
        ({"readers": 0}, "readers"),
        ({"notes": -1}, "notes"),
        ({"liars": 2}, "3 replicas bear 1"),
        ({"behaviours": ("sing",)}, "no 'sing'"),
        ({"behaviours": ()}, "do something"),
        ({"checks": ("none",)}, "no check 'none'"),
        ({"shrink_us": 5, "grow_us": 5}, "after it has grown"),
        ({"cast": {"v9.1": "drop"}}, "no 'v9.1'"),
        ({"cast": {"v0.1": "drop", "v0.2": "drop"}}, "v0 bears 1"),
        ({"client": BrokerClientConfig(profile="paper")}, "one profile"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        BrokersPopulation(**wrong)


def test_a_seed_draws_as_many_liars_at_each_node_as_are_asked_for_and_every_behaviour_in_time() -> None:
    population = BrokersPopulation(nodes=4, replicas=5, liars=2, shape="random")
    acts = set()
    for seed in range(20):
        ground = population.draw_overlay(seed)
        assert ground == population.draw_overlay(seed)
        for node in range(4):
            assert sum(name in ground.liars for name in population.replica_names(node)) == 2
        assert set(ground.edges) == {*population.client_names(), *population.intruder_names()}
        ground.versions[0].verify(operator_key().public).check("hardened")
        acts |= set(ground.liars.values())
    assert acts == set(BEHAVIOURS)


def test_on_a_line_publishers_and_readers_are_at_its_ends() -> None:
    population = BrokersPopulation(nodes=4, publishers=2, readers=2)
    edges = population.draw_overlay(3).edges
    assert [edges[name] for name in population.client_names()] == ["v0", "v0", "v3", "v3"]


def test_every_case_is_another_one_and_has_a_liar_at_each_node() -> None:
    each = 3 * len(BEHAVIOURS)
    casts = [soak.make_case(case).cast for case in range(each + each**2)]
    assert len({tuple(cast.items()) for cast in casts}) == len(casts)
    assert {len(cast) for cast in casts[:each]} == {1}
    assert {len(cast) for cast in casts[each:]} == {2}
    last = soak.make_case(soak.CASES - 1)
    assert (last.nodes, len(last.cast)) == (3, 3)


@pytest.mark.parametrize(
    "name",
    [
        "brokers-small",
        "brokers-paper",
        pytest.param("brokers-liars", marks=pytest.mark.all_only),
        pytest.param("brokers-kills", marks=pytest.mark.all_only),
    ],
)
def test_what_is_promised_arrives(name: str) -> None:
    outcome = scenario.run_scenario(scenario.load_scenario(name), 1)
    assert outcome.violations == ()
    assert outcome.deliveries > 0


def test_two_come_and_two_go_although_one_wants_to_stay_and_nothing_is_lost() -> None:
    outcome = scenario.run_scenario(scenario.load_scenario("brokers-redeploy"), 2)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert (outcome.facts["left"], outcome.facts["version"]) == (2, 3)


# --- who is called a liar ---------------------------------------------------------------------------------------------


class Witness(ScriptedPeer):
    def __init__(self, named: list[ReplicaId]) -> None:
        super().__init__()
        self.named = named


class Lied(ByzantineBroker):
    def __init__(self) -> None:
        self._inner, self.lies = ScriptedPeer(), Counter({B: 1})


A, B, W = Address("a"), Address("b"), Address("w")
SCHEME = Scheme(bytes(16), 0, 3)
PLACES = {A: ReplicaId(SCHEME, 1), B: ReplicaId(SCHEME, 2)}


def judged(named: list[ReplicaId], *, all_of_them: bool = False) -> None:
    world = World(seed=1, links=LinkDelays())
    checker = LiarsNamed(
        {place: name for name, place in PLACES.items()}, (A,), (W,), lambda machine: machine.named, all_of_them
    )
    world.add(W, lambda _: Witness(named))
    world.add(A, lambda _: Lied())
    checker.on_end(world)


def test_an_honest_broker_that_is_called_a_liar_is_noticed() -> None:
    judged([])
    judged([PLACES[A]], all_of_them=True)
    with pytest.raises(ViolationError, match="calls an honest broker a liar: b"):
        judged([PLACES[A], PLACES[B]])


def test_a_lie_that_nobody_speaks_of_is_noticed() -> None:
    with pytest.raises(ViolationError, match="a lied to b"):
        judged([], all_of_them=True)

"""SCAMP: its law, what maintains it, and what strangers cannot do to it."""

from __future__ import annotations

from math import log
from statistics import mean

import pytest

from support.neighbourhood_network import ScampNetwork
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.config import ScampConfig as Rules
from veilcast.mesh.scamp import FAILED_MAX, GRACE_PERIODS, ScampNeighbourhood
from veilcast.wire.mesh import ForwardJoin, Greet, Join, Keep, Replace

NODES = 200
TOLERANCE = 0.25
"""Of the law's (c + 1) ln n, for the mean of all views over five seeds; the law itself is an approximation."""


def law_error(copies: int, kind: type[ScampNeighbourhood] = ScampNeighbourhood) -> float:
    """Deviation of the mean view from the law, as a share of it."""
    views = []
    for seed in range(5):
        network = ScampNetwork(Rules(copies=copies), seed)
        network.grow(NODES, kind=kind)
        views.append(network.mean_view())
    expected = (copies + 1) * log(NODES)
    return (mean(views) - expected) / expected


@pytest.mark.parametrize("copies", [0, 1, pytest.param(2, marks=pytest.mark.all_only)])
def test_views_have_about_c_plus_one_times_log_n_members(copies: int) -> None:
    assert abs(law_error(copies)) < TOLERANCE


class NeverForwards(ScampNeighbourhood):
    def _keep_or_pass_on(self, message: ForwardJoin, now: int) -> None:
        super()._keep_or_pass_on(ForwardJoin(message.newcomer, message.lease_ms, 0), now)


class SwallowsCopies(ScampNeighbourhood):
    def _keep_or_pass_on(self, message: ForwardJoin, now: int) -> None:
        if message.newcomer not in self.partial:
            super()._keep_or_pass_on(message, now)


class DropsInsteadOfForwarding(ScampNeighbourhood):
    def _others(self, newcomer: Address) -> list[Address]:
        return [] if self._rng.random() < 0.5 else super()._others(newcomer)


@pytest.mark.parametrize("planted", [SwallowsCopies, DropsInsteadOfForwarding])
def test_the_law_catches_a_node_that_loses_copies(planted: type[ScampNeighbourhood]) -> None:
    assert abs(law_error(2, planted)) > TOLERANCE


def test_nodes_that_keep_every_copy_at_once_make_the_contact_a_hub() -> None:
    """The planted bug: copies that are kept where they first arrive never leave the contact's own neighbourhood."""
    spread = {}
    for kind in (ScampNeighbourhood, NeverForwards):
        network = ScampNetwork(Rules(copies=0), 1)
        network.grow(NODES, kind=kind)
        spread[kind] = max(len(node.partial) for node in network.nodes.values())
    assert spread[NeverForwards] > spread[ScampNeighbourhood]


@pytest.mark.parametrize("seed", range(5))
def test_two_isolated_nodes_find_the_others_through_their_contacts(seed: int) -> None:
    """Both restarted, and one let the other in: there is no failed node to probe, and no lease ends soon."""
    network = ScampNetwork(Rules(), seed)
    network.grow(20)
    network.add("a", "n0")
    network.add("b", "n0")
    for name, other in ("ab", "ba"):
        network.tell(other, name, ForwardJoin(other, 3_600_000, 0))
        network.nodes[Address(name)]._renew_us = 1 << 60
    assert not network.is_connected()
    network.beat(2, periods=Rules().isolation_periods)
    assert network.is_connected()


@pytest.mark.parametrize("seed", range(20))
def test_the_overlay_is_connected_and_both_ends_know_every_arc(seed: int) -> None:
    network = ScampNetwork(Rules(copies=0), seed)
    network.grow(100)
    assert network.is_connected()
    assert network.is_consistent()


class NoIndirection(ScampNeighbourhood):
    def _walk(self, join: Join, now: int) -> None:
        self._be_contact(Address(join.newcomer), join.lease_ms, join.fresh, now)


def test_a_contact_that_all_newcomers_ask_is_kept_no_more_than_others() -> None:
    degrees = {}
    for kind in (ScampNeighbourhood, NoIndirection):
        network = ScampNetwork(Rules(copies=0), 5)
        network.grow(60, kind=kind)
        degrees[kind] = len(network.nodes[Address("n0")].inward)
    assert degrees[ScampNeighbourhood] < 3 * log(60)
    assert degrees[NoIndirection] == 59


def test_arcs_end_with_their_lease_and_are_renewed() -> None:
    network = ScampNetwork(Rules(copies=1, lease_ms=1_000_000), 3)
    network.grow(40)
    dead = Address("n7")
    del network.nodes[dead]
    before = network.mean_view()
    assert any(dead in node.partial for node in network.nodes.values())
    network.beat(1_000 // GRACE_PERIODS + 2, GRACE_PERIODS)
    assert not any(dead in node.neighbours() for node in network.nodes.values())
    network.beat(3 * 1_000 // GRACE_PERIODS, GRACE_PERIODS)
    assert network.is_connected()
    assert before * 0.6 < network.mean_view() < before * 1.6


def test_a_leaving_node_is_replaced_in_all_but_c_plus_one_views() -> None:
    for seed in range(10):
        copies = seed % 3
        network = ScampNetwork(Rules(copies=copies), seed)
        network.grow(60)
        leaver = network.nodes[Address("n9")]
        kept, keeping, arcs = list(leaver.partial), list(leaver.inward), network.arcs()
        network.sent.clear()
        leaver.leave(network.now)
        named = {target: message.successor for _, target, message in network.sent if isinstance(message, Replace)}
        assert set(named) == set(kept) | set(keeping)
        heirs = [heir for heir in named.values() if heir is not None]
        assert len(heirs) == max(0, len(keeping) - copies - 1)
        doubles = sum(heir in network.nodes[name].partial for name, heir in named.items() if heir)
        del network.nodes[Address("n9")]
        network.deliver()
        assert network.arcs() == arcs - len(kept) - len(keeping) + len(heirs) - doubles
        assert not any("n9" in node.neighbours() for node in network.nodes.values())
        assert network.is_connected()
        assert network.is_consistent()


def test_a_node_that_has_left_takes_no_further_part() -> None:
    network = ScampNetwork(Rules(), 1)
    network.grow(5)
    node = network.nodes[Address("n1")]
    node.leave(0)
    network.deliver()
    network.sent.clear()
    network.beat(100)
    assert not [source for source, _, _ in network.sent if source == "n1"]
    network.tell("n2", "n1", Keep(1_000))
    assert network.refused


def test_a_node_that_hears_no_neighbour_joins_again_through_a_seen_address_or_its_contacts() -> None:
    for passive_max in (0, 24):
        network = ScampNetwork(Rules(passive_max=passive_max), 2)
        network.grow(30)
        lonely = network.nodes[Address("n12")]
        for name in lonely.neighbours():
            network.nodes[name].on_neighbour_lost(Address("n12"), 0)
        network.mail.clear()
        for node in network.nodes.values():
            node.partial.pop(Address("n12"), None)
            node.inward.pop(Address("n12"), None)
            node.passive.pop(Address("n12"), None)
        assert not network.is_consistent()
        network.beat(25)
        assert lonely.inward
        assert network.is_connected()


def test_two_networks_that_share_a_contact_become_one_when_leases_end() -> None:
    network = ScampNetwork(Rules(lease_ms=60_000), 4)
    network.grow(20)
    network.grow(20, "m")
    assert not network.is_connected()
    for number in range(20):
        network.nodes[Address(f"m{number}")]._contacts.append(Address("n0"))
    network.beat(80)
    assert network.is_connected()


def part(network: ScampNetwork, there: list[Address]) -> None:
    """Let these and the others lose one another, as if the connections between them fail."""
    while cut := [
        (node, other)
        for name, node in network.nodes.items()
        for other in node.neighbours()
        if (name in there) != (other in there)
    ]:
        for node, other in cut:
            node.on_neighbour_lost(other, network.now)
        network.mail.clear()


@pytest.mark.parametrize("seed", range(10))
def test_partitioned_parts_meet_again_long_before_leases_end(seed: int) -> None:
    network = ScampNetwork(Rules(), seed)
    network.grow(30)
    arcs = network.arcs()
    part(network, list(network.nodes)[3 : 5 + seed])
    assert not network.is_connected()
    network.beat(45)
    assert network.is_connected()
    assert network.is_consistent()
    assert network.arcs() < 2 * arcs  # One is tried after the other.


def test_a_node_that_has_not_joined_keeps_asking_despite_its_own_newcomers() -> None:
    network = ScampNetwork(Rules(), 4)
    network.add("x", "n0").beat(0)
    network.deliver()
    network.add("y", "x").beat(0)
    network.deliver()
    assert network.nodes[Address("x")].neighbours() == ["y"]
    network.grow(20)
    assert not network.is_connected()
    network.beat(25)
    assert network.is_connected()


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_has_not_joined_does_not_take_its_own_newcomers_for_the_network(seed: int) -> None:
    network = ScampNetwork(Rules(), seed)
    network.add("x", "n0").beat(0)
    for number in range(8):
        network.add(f"y{number}", "x").beat(0)
        network.deliver()
    network.grow(10)
    assert not network.is_connected()
    network.beat(25)
    assert network.is_connected()


def survivors_are_connected(passive_max: int, seed: int) -> bool:
    network = ScampNetwork(Rules(copies=0, passive_max=passive_max, lease_ms=30_000), seed)
    network.grow(100)
    network.beat(45)
    network.kill(network.rng.sample(list(network.nodes), 80))
    network.beat(25)
    return network.is_connected()


@pytest.mark.all_only
def test_a_passive_view_saves_the_survivors_of_a_mass_crash() -> None:
    """Eighty of a hundred die at once, possibly all contacts among them."""
    without = mean(survivors_are_connected(0, seed) for seed in range(5))
    beside = mean(survivors_are_connected(24, seed) for seed in range(5))
    assert beside > without
    assert beside >= 0.95


def test_a_full_node_keeps_no_more_nodes_and_forwards() -> None:
    network = ScampNetwork(Rules(passive_max=3), 1, neighbours_max=4)
    node = network.add("a")
    for number in range(10):
        network.tell(f"x{number}", "a", Keep(10_000))
    assert len(node.neighbours()) == 4
    assert len(network.refused) == 6
    node.partial[Address("x0")] = 1 << 60
    for number in range(10):
        network.sent.clear()
        network.tell("x0", "a", ForwardJoin(f"y{number}", 1_000, 5))
        assert [message for _, _, message in network.sent] == [ForwardJoin(f"y{number}", 1_000, 4)]
    assert len(node.neighbours()) == 4
    assert len(node.passive) == 3


def test_a_flood_of_copies_from_a_neighbour_stays_within_the_bounds() -> None:
    network = ScampNetwork(Rules(), 1, neighbours_max=16)
    network.grow(10)
    node = network.nodes[Address("n5")]
    enemy = next(iter(node.neighbours()))
    links = node.neighbours()
    network.sent.clear()
    for number in range(2_000):
        node.on_message(ForwardJoin(f"fake{number}", (1 << 32) - 1, 0xFFFF), enemy, 0)
        node.on_message(Join(f"fake{number}", (1 << 32) - 1, True, 0xFFFF), enemy, 0)
        node.on_message(ForwardJoin("n5", 1_000, number % 3), enemy, 0)
        node.on_message(Join("n5", 1_000, False, 0), enemy, 0)
    assert len(node.neighbours()) <= 16
    assert len(node.passive) <= 24
    assert set(links) <= set(node.neighbours())
    assert Address("n5") not in node.neighbours()
    assert Address("n5") not in node.passive
    rules = network.config.scamp
    assert all(m.hops <= rules.forward_hops for _, _, m in network.sent if isinstance(m, ForwardJoin))
    assert all(m.hops < rules.walk_hops for s, _, m in network.sent if s == "n5" and isinstance(m, Join) and m.fresh)
    assert max(node.partial.values()) <= rules.lease_ms * 1_000 + GRACE_PERIODS * 1_000_000


def test_a_stranger_speaks_only_for_itself_and_replaces_no_node() -> None:
    network = ScampNetwork(Rules(), 1)
    node = network.add("a")
    network.tell("x", "a", Keep(1_000))
    for message in (Join("y", 1, True, 1), ForwardJoin("y", 1, 1), Replace("y"), Greet()):
        network.tell("stranger", "a", message)
    assert len(network.refused) == 4
    assert node.neighbours() == ["x"]


def test_a_leaving_node_can_name_neither_its_neighbour_nor_a_kept_node_and_only_once() -> None:
    for successor in ("a", "b", "c"):
        network = ScampNetwork(Rules(), 1)
        node = network.add("a")
        node.partial |= {Address("b"): 1 << 60, Address("c"): 1 << 60}
        network.tell("b", "a", Replace(successor))
        assert node.neighbours() == (["c", "b"] if successor == "b" else ["c"])


def test_a_node_that_joins_must_know_its_name_and_sane_rules() -> None:
    network = ScampNetwork(Rules(), 1)
    context = network.add("a")._context
    with pytest.raises(LocalError):
        ScampNeighbourhood(MeshConfig(membership="scamp"), None, (), context, network.rng, 0)
    for wrong in (
        {"copies": -1},
        {"passive_max": -1},
        {"probe_periods": -1},
        {"walk_hops": 0},
        {"forward_hops": 1 << 16},
        {"lease_ms": 1},
        {"isolation_periods": 1},
    ):
        with pytest.raises(ConfigError):
            Rules(**wrong)


def test_failed_nodes_are_tried_again_for_one_lease_and_up_to_a_bound() -> None:
    network = ScampNetwork(Rules(probe_periods=5, lease_ms=1_000_000), 1)
    network.grow(20)
    network.beat(50)
    assert not any(node.probed for node in network.nodes.values())
    node = network.nodes[Address("n3")]
    for number in range(2 * FAILED_MAX):
        node.on_neighbour_lost(Address(f"x{number}"), network.now)
    assert node.sizes()["failed"] == FAILED_MAX
    network.beat(50)
    assert set(node.probed) <= {f"x{number}" for number in range(FAILED_MAX, 2 * FAILED_MAX)}
    assert node.probed
    network.beat(110, GRACE_PERIODS)
    assert node.sizes()["failed"] == 0

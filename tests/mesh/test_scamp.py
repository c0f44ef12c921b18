"""SCAMP: its law, what maintains it, and what strangers cannot do to it."""

from __future__ import annotations

from math import log
from statistics import mean

import pytest

from support.scamp_network import ScampNetwork
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
        colony = ScampNetwork(Rules(copies=copies), seed)
        colony.grow(NODES, kind=kind)
        views.append(colony.mean_view())
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


def test_who_keeps_every_copy_at_once_makes_a_hub_of_the_contact() -> None:
    """The planted bug: copies that are kept where they first arrive never leave the contact's own neighbourhood."""
    spread = {}
    for kind in (ScampNeighbourhood, NeverForwards):
        colony = ScampNetwork(Rules(copies=0), 1)
        colony.grow(NODES, kind=kind)
        spread[kind] = max(len(node.partial) for node in colony.nodes.values())
    assert spread[NeverForwards] > spread[ScampNeighbourhood]


@pytest.mark.parametrize("seed", range(5))
def test_two_who_have_only_each_other_find_the_others_by_their_contacts(seed: int) -> None:
    """Both restarted, and one let the other in: there is no failed node to probe, and no lease ends soon."""
    colony = ScampNetwork(Rules(), seed)
    colony.grow(20)
    colony.add("a", "n0")
    colony.add("b", "n0")
    for name, other in ("ab", "ba"):
        colony.tell(other, name, ForwardJoin(other, 3_600_000, 0))
        colony.nodes[Address(name)]._renew_us = 1 << 60
    assert not colony.is_connected()
    colony.beat(2, periods=Rules().isolation_periods)
    assert colony.is_connected()


@pytest.mark.parametrize("seed", range(20))
def test_the_overlay_is_connected_and_both_ends_know_of_every_arc(seed: int) -> None:
    colony = ScampNetwork(Rules(copies=0), seed)
    colony.grow(100)
    assert colony.is_connected()
    assert colony.is_consistent()


class NoIndirection(ScampNeighbourhood):
    def _walk(self, join: Join, now: int) -> None:
        self._be_contact(Address(join.newcomer), join.lease_ms, join.fresh, now)


def test_whom_all_newcomers_ask_is_no_more_kept_than_others() -> None:
    degrees = {}
    for kind in (ScampNeighbourhood, NoIndirection):
        colony = ScampNetwork(Rules(copies=0), 5)
        colony.grow(60, kind=kind)
        degrees[kind] = len(colony.nodes[Address("n0")].inward)
    assert degrees[ScampNeighbourhood] < 3 * log(60)
    assert degrees[NoIndirection] == 59


def test_arcs_end_with_their_lease_and_are_made_anew() -> None:
    colony = ScampNetwork(Rules(copies=1, lease_ms=1_000_000), 3)
    colony.grow(40)
    dead = Address("n7")
    del colony.nodes[dead]
    before = colony.mean_view()
    assert any(dead in node.partial for node in colony.nodes.values())
    colony.beat(1_000 // GRACE_PERIODS + 2, GRACE_PERIODS)
    assert not any(dead in node.neighbours() for node in colony.nodes.values())
    colony.beat(3 * 1_000 // GRACE_PERIODS, GRACE_PERIODS)
    assert colony.is_connected()
    assert before * 0.6 < colony.mean_view() < before * 1.6


def test_who_leaves_is_replaced_but_for_c_plus_one_times() -> None:
    for seed in range(10):
        copies = seed % 3
        colony = ScampNetwork(Rules(copies=copies), seed)
        colony.grow(60)
        leaver = colony.nodes[Address("n9")]
        kept, keeping, arcs = list(leaver.partial), list(leaver.inward), colony.arcs()
        colony.sent.clear()
        leaver.leave(colony.now)
        named = {target: message.successor for _, target, message in colony.sent if isinstance(message, Replace)}
        assert set(named) == set(kept) | set(keeping)
        heirs = [heir for heir in named.values() if heir is not None]
        assert len(heirs) == max(0, len(keeping) - copies - 1)
        doubles = sum(heir in colony.nodes[name].partial for name, heir in named.items() if heir)
        del colony.nodes[Address("n9")]
        colony.deliver()
        assert colony.arcs() == arcs - len(kept) - len(keeping) + len(heirs) - doubles
        assert not any("n9" in node.neighbours() for node in colony.nodes.values())
        assert colony.is_connected()
        assert colony.is_consistent()


def test_who_has_left_takes_no_part_any_more() -> None:
    colony = ScampNetwork(Rules(), 1)
    colony.grow(5)
    node = colony.nodes[Address("n1")]
    node.leave(0)
    colony.deliver()
    colony.sent.clear()
    colony.beat(100)
    assert not [source for source, _, _ in colony.sent if source == "n1"]
    colony.tell("n2", "n1", Keep(1_000))
    assert colony.refused


def test_who_hears_nobody_joins_again_by_an_address_it_has_seen_or_by_its_contacts() -> None:
    for passive_max in (0, 24):
        colony = ScampNetwork(Rules(passive_max=passive_max), 2)
        colony.grow(30)
        lonely = colony.nodes[Address("n12")]
        for name in lonely.neighbours():
            colony.nodes[name].on_neighbour_lost(Address("n12"), 0)
        colony.mail.clear()
        for node in colony.nodes.values():
            node.partial.pop(Address("n12"), None)
            node.inward.pop(Address("n12"), None)
            node.passive.pop(Address("n12"), None)
        assert not colony.is_consistent()
        colony.beat(25)
        assert lonely.inward
        assert colony.is_connected()


def test_two_networks_that_share_a_contact_become_one_when_leases_end() -> None:
    colony = ScampNetwork(Rules(lease_ms=60_000), 4)
    colony.grow(20)
    colony.grow(20, "m")
    assert not colony.is_connected()
    for number in range(20):
        colony.nodes[Address(f"m{number}")]._contacts.append(Address("n0"))
    colony.beat(80)
    assert colony.is_connected()


def part(colony: ScampNetwork, there: list[Address]) -> None:
    """Let these and the others lose one another, as if the connections between them fail."""
    while cut := [
        (node, other)
        for name, node in colony.nodes.items()
        for other in node.neighbours()
        if (name in there) != (other in there)
    ]:
        for node, other in cut:
            node.on_neighbour_lost(other, colony.now)
        colony.mail.clear()


@pytest.mark.parametrize("seed", range(10))
def test_parts_that_were_cut_off_meet_again_long_before_leases_end(seed: int) -> None:
    colony = ScampNetwork(Rules(), seed)
    colony.grow(30)
    arcs = colony.arcs()
    part(colony, list(colony.nodes)[3 : 5 + seed])
    assert not colony.is_connected()
    colony.beat(45)
    assert colony.is_connected()
    assert colony.is_consistent()
    assert colony.arcs() < 2 * arcs  # One is tried after the other.


def test_who_was_not_let_in_yet_goes_on_asking_whoever_came_by_it() -> None:
    colony = ScampNetwork(Rules(), 4)
    colony.add("x", "n0").beat(0)
    colony.deliver()
    colony.add("y", "x").beat(0)
    colony.deliver()
    assert colony.nodes[Address("x")].neighbours() == ["y"]
    colony.grow(20)
    assert not colony.is_connected()
    colony.beat(25)
    assert colony.is_connected()


@pytest.mark.parametrize("seed", range(10))
def test_who_was_not_let_in_yet_does_not_take_those_who_came_by_it_for_the_network(seed: int) -> None:
    colony = ScampNetwork(Rules(), seed)
    colony.add("x", "n0").beat(0)
    for number in range(8):
        colony.add(f"y{number}", "x").beat(0)
        colony.deliver()
    colony.grow(10)
    assert not colony.is_connected()
    colony.beat(25)
    assert colony.is_connected()


def survivors_are_connected(passive_max: int, seed: int) -> bool:
    colony = ScampNetwork(Rules(copies=0, passive_max=passive_max, lease_ms=30_000), seed)
    colony.grow(100)
    colony.beat(45)
    colony.kill(colony.rng.sample(list(colony.nodes), 80))
    colony.beat(25)
    return colony.is_connected()


@pytest.mark.all_only
def test_a_passive_view_saves_the_survivors_of_a_mass_crash() -> None:
    """Eighty of a hundred die at once, possibly all contacts among them."""
    without = mean(survivors_are_connected(0, seed) for seed in range(5))
    beside = mean(survivors_are_connected(24, seed) for seed in range(5))
    assert beside > without
    assert beside >= 0.95


def test_a_full_node_keeps_nobody_more_and_passes_on() -> None:
    colony = ScampNetwork(Rules(passive_max=3), 1, neighbours_max=4)
    node = colony.add("a")
    for number in range(10):
        colony.tell(f"x{number}", "a", Keep(10_000))
    assert len(node.neighbours()) == 4
    assert colony.refused == 6
    node.partial[Address("x0")] = 1 << 60
    for number in range(10):
        colony.sent.clear()
        colony.tell("x0", "a", ForwardJoin(f"y{number}", 1_000, 5))
        assert [message for _, _, message in colony.sent] == [ForwardJoin(f"y{number}", 1_000, 4)]
    assert len(node.neighbours()) == 4
    assert len(node.passive) == 3


def test_a_flood_of_copies_from_a_neighbour_stays_within_the_bounds() -> None:
    colony = ScampNetwork(Rules(), 1, neighbours_max=16)
    colony.grow(10)
    node = colony.nodes[Address("n5")]
    enemy = next(iter(node.neighbours()))
    links = node.neighbours()
    colony.sent.clear()
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
    rules = colony.config.scamp
    assert all(m.hops <= rules.forward_hops for _, _, m in colony.sent if isinstance(m, ForwardJoin))
    assert all(m.hops < rules.walk_hops for s, _, m in colony.sent if s == "n5" and isinstance(m, Join) and m.fresh)
    assert max(node.partial.values()) <= rules.lease_ms * 1_000 + GRACE_PERIODS * 1_000_000


def test_a_stranger_speaks_for_itself_only_and_replaces_nobody() -> None:
    colony = ScampNetwork(Rules(), 1)
    node = colony.add("a")
    colony.tell("x", "a", Keep(1_000))
    for message in (Join("y", 1, True, 1), ForwardJoin("y", 1, 1), Replace("y"), Greet()):
        colony.tell("stranger", "a", message)
    assert colony.refused == 4
    assert node.neighbours() == ["x"]


def test_who_leaves_can_name_neither_us_nor_whom_we_keep_and_only_once() -> None:
    for successor in ("a", "b", "c"):
        colony = ScampNetwork(Rules(), 1)
        node = colony.add("a")
        node.partial |= {Address("b"): 1 << 60, Address("c"): 1 << 60}
        colony.tell("b", "a", Replace(successor))
        assert node.neighbours() == (["c", "b"] if successor == "b" else ["c"])


def test_a_node_that_joins_must_know_its_name_and_sane_rules() -> None:
    colony = ScampNetwork(Rules(), 1)
    door = colony.add("a")._door
    with pytest.raises(LocalError):
        ScampNeighbourhood(MeshConfig(membership="scamp"), None, (), door, colony.rng, 0)
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


def test_those_that_failed_are_tried_again_for_the_term_of_a_lease_and_up_to_a_bound() -> None:
    colony = ScampNetwork(Rules(probe_periods=5, lease_ms=1_000_000), 1)
    colony.grow(20)
    colony.beat(50)
    assert not any(node.probed for node in colony.nodes.values())
    node = colony.nodes[Address("n3")]
    for number in range(2 * FAILED_MAX):
        node.on_neighbour_lost(Address(f"x{number}"), colony.now)
    assert node.sizes()["failed"] == FAILED_MAX
    colony.beat(50)
    assert set(node.probed) <= {f"x{number}" for number in range(FAILED_MAX, 2 * FAILED_MAX)}
    assert node.probed
    colony.beat(110, GRACE_PERIODS)
    assert node.sizes()["failed"] == 0

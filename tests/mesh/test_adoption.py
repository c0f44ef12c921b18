"""Adoption: when a peer that came becomes an own link, and what an adversary that ends own links gains."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from support.neighbourhood_network import PERIOD_US, CertifiedNetwork
from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.mesh.address_book import AddressBook
from veilcast.mesh.certified import FIRST_NEED_PERIODS, NEED_PERIODS, PeerAdoption
from veilcast.mesh.config import FirstRelayConfig
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.link_admission import CertifiedLink, NeighbourAdmission
from veilcast.mesh.neighbour_record import RelayRecord
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.mesh.population import address_prefix


class Bench:
    """A node's slots, book and adoption; `silent` names the peers that send no heartbeats."""

    def __init__(self, seed: int = 1) -> None:
        self.slots = NeighbourAdmission(chosen_max=8, come_max=11, prefix_max=2, rng=Random(seed))
        self.book = AddressBook(64, 4, address_prefix, Random(seed))
        self.adoption = PeerAdoption(self.slots, self.book, Random(seed))
        self.silent: dict[Address, None] = {}

    def link(self, name: str, *, chosen: bool = False) -> Address:
        address = Address(name)
        link = CertifiedLink(address_prefix(address), name.encode(), 1 << 30, chosen)
        if chosen:
            self.slots.choose(address, link)
        else:
            self.slots.admit(address, link)
        return address

    def beat(self, times: int = 1, *, has_relay: bool = True) -> Address | None:
        """Heartbeats in which the node goes on trying addresses; gives the peer to adopt after the last."""
        for _ in range(times):
            self.adoption.observe(lambda name: name not in self.silent, has_relay=has_relay)
        return self.adoption.candidate(idle=False)


def bereft(came: int = 4) -> Bench:
    """A node that hears no own link, and some peers that came."""
    bench = Bench()
    for number in range(8):
        bench.silent[bench.link(f"own{number}.1", chosen=True)] = None
    for number in range(came):
        bench.link(f"came{number}.1")
    for name in bench.silent:
        bench.slots.free(name)
    return bench


def test_a_node_that_hears_no_own_link_adopts_a_peer_that_came_though_it_still_tries_dead_addresses() -> None:
    bench = bereft()
    assert bench.beat(NEED_PERIODS - 1) is None
    name = bench.beat()
    assert name is not None
    bench.slots.adopt(name)
    assert bench.beat(2 * NEED_PERIODS) is None


def test_one_heartbeat_of_an_own_link_ends_the_need() -> None:
    """An adversary that ends own links does not keep the node from new ones: these come before the count is
    complete."""
    bench = bereft()
    for _ in range(10):
        assert bench.beat(NEED_PERIODS - 1) is None
        new = bench.link("new.1", chosen=True)
        assert bench.beat() is None
        bench.slots.free(new)


def test_an_adversary_that_cuts_the_node_off_and_comes_first_has_no_head_start() -> None:
    bench = bereft(came=0)
    assert bench.beat(100) is None
    bench.link("insider.1")
    assert bench.beat(NEED_PERIODS - 1) is None
    bench.silent[Address("insider.1")] = None
    assert bench.beat() is None
    del bench.silent[Address("insider.1")]
    assert bench.beat(NEED_PERIODS - 1) is None


def test_later_peers_are_not_adopted_from_however_many_prefixes_they_come() -> None:
    """The flood comes when six members are linked, and fills the remaining slots. Then the node's own links end."""
    adopted: Counter[str] = Counter()
    for seed in range(50):
        bench = Bench(seed)
        for number in range(6):
            bench.link(f"member{number}.1")
        for number in range(200):
            bench.link(f"insider{number}.1")
        assert sum(name.startswith("insider") for name in bench.slots.links) >= 5
        name = bench.beat(NEED_PERIODS)
        assert name is not None
        adopted[name] += 1
    assert all(name.startswith("member") for name in adopted)
    assert len(adopted) > 3


def test_two_addresses_of_a_prefix_are_no_likelier_than_one() -> None:
    adopted: Counter[str] = Counter()
    for seed in range(400):
        bench = Bench(seed)
        for name in ("evil.1", "evil.2", "good.1", "late1.1", "late2.1", "late3.1"):
            bench.link(name)
        adopted[address_prefix(bench.beat(NEED_PERIODS) or Address(""))] += 1
    assert set(adopted) == {"evil", "good"}
    assert abs(adopted["evil"] - 200) < 40  # Four standard deviations.


def test_a_node_without_a_first_relay_waits_longer_before_it_adopts_a_peer() -> None:
    bench = bereft()
    assert bench.beat(FIRST_NEED_PERIODS - 1, has_relay=False) is None
    assert bench.beat(has_relay=False) in bench.slots.links


@pytest.mark.parametrize("has_relay", [True, False])
def test_a_node_whose_only_contact_is_dead_has_an_own_link_in_the_end(has_relay: bool) -> None:
    """All members that the node knows have come to it, so it knocks at its dead contact again and again."""
    network = CertifiedNetwork()
    node = network.add("hub", "gone")
    if has_relay:
        members = NeighbourTable((), period_us=PERIOD_US, silent_periods=5, now=network.now)
        kept = RelayRecord(b"relay", "gone too", 0, 0)
        choices = StickyChoices(Secret(bytes(32)))
        node._relay = FirstRelay(FirstRelayConfig(), choices, members, lambda _: None, epoch_beats=3600, stored=kept)
    for number in range(4):
        network.add(f"n{number}", "hub")
    network.beat(4 + FIRST_NEED_PERIODS)
    assert len(node.slots.chosen()) == 1
    assert node.slots.chosen()[0] in network.nodes


def test_a_node_without_another_member_draws_a_peer_from_its_book() -> None:
    bench = bereft()
    assert bench.adoption.candidate(idle=True) is None
    bench.book.add_hearsay(Address("came2.1"), Address("came2.1"))
    assert bench.adoption.candidate(idle=True) == "came2.1"

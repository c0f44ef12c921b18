"""Link slots: which peers are admitted, and which are evicted."""

from __future__ import annotations

from inspect import signature
from random import Random

from veilcast.machine import Address
from veilcast.mesh.link_admission import VISITS_MAX, CertifiedLink, NeighbourAdmission
from veilcast.mesh.neighbourhood import NeighbourhoodContext
from veilcast.sim.mesh.population import address_prefix

COME_MAX = 8


def make_slots(prefix_max: int = 2) -> NeighbourAdmission:
    return NeighbourAdmission(chosen_max=4, come_max=COME_MAX, prefix_max=prefix_max, rng=Random(1))


def link(name: str, *, chosen: bool = False) -> CertifiedLink:
    return CertifiedLink(address_prefix(Address(name)), name.encode(), 99, chosen)


def come(slots: NeighbourAdmission, name: str) -> bool:
    return slots.admit(Address(name), link(name)) != name


def test_peers_that_come_never_take_the_slot_of_a_chosen_link() -> None:
    slots = make_slots()
    for number in range(4):
        assert slots.may_choose(f"own{number}")
        slots.choose(Address(f"own{number}.0"), link(f"own{number}.0", chosen=True))
    assert not slots.may_choose("own9")
    assert slots.may_choose("own9", extra=1)
    for number in range(1_000):
        come(slots, f"p{number % 100}.{number}")
    assert [name for name in slots.chosen() if name.startswith("own")] == slots.chosen()
    assert len(slots.chosen()) == 4
    assert len(slots.links) == 4 + COME_MAX


def test_a_prefix_has_a_few_slots_among_chosen_links_and_among_peers_that_came() -> None:
    slots = make_slots()
    assert [come(slots, f"p.{number}") for number in range(5)] == [True, True, False, False, False]
    for number in (5, 6):
        assert slots.may_choose("p")
        slots.choose(Address(f"p.{number}"), link(f"p.{number}", chosen=True))
    assert not slots.may_choose("p")


def test_the_oldest_half_of_the_peers_that_came_stays() -> None:
    slots = make_slots()
    first = [f"old{number}.0" for number in range(COME_MAX // 2)]
    assert all(come(slots, name) for name in first)
    for number in range(10_000):
        come(slots, f"p{number}.0")
    assert all(Address(name) in slots for name in first)
    assert slots.count_visited_prefixes() == VISITS_MAX


def test_a_prefix_that_never_came_goes_before_those_that_come_again_and_again() -> None:
    """An attacker with few prefixes holds every slot. Honest peers find room, and keep it however often the attacker
    returns."""
    slots = make_slots(prefix_max=1)
    for _ in range(3):
        for number in range(20):
            name = f"bad{number}.0"
            come(slots, name)
            slots.free(Address(name))
    for number in range(COME_MAX):
        assert come(slots, f"bad{number}.0")
    honest = [f"good{number}.0" for number in range(COME_MAX // 2)]
    assert all(come(slots, name) for name in honest)
    for number in range(1_000):
        come(slots, f"bad{number % 20}.{number}")
    assert all(Address(name) in slots for name in honest)


def test_the_evicted_peer_is_of_the_prefix_that_came_most_often() -> None:
    slots = make_slots()
    for number in range(COME_MAX // 2):
        come(slots, f"old{number}.0")
    for name in ("a.1", "b.1", "c.1", "c.2"):
        assert come(slots, name)
    assert slots.admit(Address("d.1"), link("d.1")) in ("c.1", "c.2")
    assert slots.admit(Address("e.1"), link("e.1")) in ("c.1", "c.2")
    assert Address("a.1") in slots
    assert Address("b.1") in slots


def test_of_equal_rights_mostly_the_present_neighbour_stays() -> None:
    slots = make_slots()
    for number in range(COME_MAX):
        come(slots, f"p{number}.0")
    let_in = sum(come(slots, f"r{number}.0") for number in range(400))
    assert 20 < let_in < 90


def test_the_traffic_of_a_link_does_not_influence_its_eviction() -> None:
    """An adversary that fills a node learns nothing about publications from evictions: the slots do not know the
    traffic."""
    assert not {"carries", "carry"} & set(signature(NeighbourAdmission.admit).parameters)
    assert "carries" not in dir(NeighbourhoodContext)

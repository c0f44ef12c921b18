"""The shortest way, the ways that may replace it, and those that may not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.mesh_network import TOKEN, advert
from veilcast.crypto import hash_chain
from veilcast.machine import Address
from veilcast.mesh.routes import AdvertisedOrigin, RouteTable

A, B, C = Address("a"), Address("b"), Address("c")
FIRST = advert().value


def heard(*offers: tuple[Address, int]) -> AdvertisedOrigin:
    """An origin of which each neighbour offered a value this many hops from its start, in this order."""
    routes = RouteTable(d_max=16, tokens_max=1, origins_max=1)
    for place, (name, hops) in enumerate(offers):
        value = hash_chain.advance_chain(FIRST, hops)
        if place == 0:
            routes.add(advert(), name)
            routes.origins(TOKEN)[0].value = value
            continue
        found = routes.find(TOKEN, value)
        assert found is not None
        found[0].offer(value, found[1], name)
    return routes.origins(TOKEN)[0]


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 16)), min_size=1, max_size=10))
def test_the_way_is_the_nearest_of_those_that_are_safe_whatever_the_order(offers: list[tuple[Address, int]]) -> None:
    origin = heard(*offers)
    nearest, standing = 99, dict[Address, int]()
    for name, hops in offers:
        if hops < nearest or standing:
            standing[name] = hops
        nearest = min(nearest, hops)
        if min(standing.values(), default=99) > nearest + 1:
            standing = {}
    assert origin.value == hash_chain.advance_chain(FIRST, nearest)
    assert origin.is_reachable is bool(standing)
    if origin.via is not None:
        assert standing[origin.via] == min(standing.values())
        assert origin.advertised_value == hash_chain.advance_chain(FIRST, standing[origin.via] + 1)


def test_the_first_of_equals_is_kept() -> None:
    assert heard((B, 3), (A, 3), (C, 3)).via == B


def test_a_lost_way_is_replaced_by_one_at_most_one_hop_further() -> None:
    origin = heard((A, 3), (B, 4), (C, 5))
    origin.withdraw(A)
    assert (origin.via, origin.advertised_value) == (B, hash_chain.advance_chain(FIRST, 5))
    origin.withdraw(B)
    assert (origin.via, origin.advertised_value, origin.is_reachable) == (None, None, False)


def test_one_detour_does_not_make_room_for_the_next_and_what_is_lost_stays_lost() -> None:
    """Otherwise a loop could feed itself: the nearest value ever seen counts, not the latest."""
    origin = heard((A, 3), (B, 4))
    origin.withdraw(A)
    origin.offer(hash_chain.advance_chain(FIRST, 5), 2, B)
    assert origin.via is None
    origin.offer(hash_chain.advance_chain(FIRST, 4), 1, C)
    assert origin.via is None
    origin.offer(hash_chain.advance_chain(FIRST, 2), -1, C)
    assert origin.via == C


def test_unreachable_origins_make_room_and_reachable_ones_do_not() -> None:
    routes = RouteTable(d_max=4, tokens_max=1, origins_max=2)
    one, two = routes.add(advert(1), A), routes.add(advert(2), A)
    assert one is not None
    assert two is not None
    assert routes.add(advert(3), A) is None
    one.withdraw(A)
    three = routes.add(advert(3), A)
    assert routes.origins(TOKEN) == [two, three]


def test_our_own_origin_always_finds_room_and_takes_no_offers() -> None:
    routes = RouteTable(d_max=4, tokens_max=1, origins_max=1)
    routes.add(advert(1), A)
    own = routes.add(advert(2), None)
    assert own is not None
    assert routes.origins(TOKEN) == [own]
    own.offer(hash_chain.advance_chain(own.value), 1, A)
    assert (own.via, own.advertised_value, own.is_reachable) == (None, advert(2).value, True)


def test_tokens_over_the_bound_are_not_stored() -> None:
    routes = RouteTable(d_max=4, tokens_max=0, origins_max=1)
    assert routes.add(advert(), A) is None
    assert routes.count_offers() == 0

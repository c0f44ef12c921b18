"""Guards are drawn once, kept over restarts, and get their place back."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import TamperedError
from veilcast.machine import Record
from veilcast.tree.guards import DEPUTIES_MAX, GUARDS_RECORD, Guards
from veilcast.tree.listing import Listing
from veilcast.wire.tree import ListedNode

NODES = [ListedNode(f"n{number}:1", number.to_bytes(32, "big"), 0, 1) for number in range(12)]
HOME = NODES[0].node
ALL = Listing(NODES)


def without(*gone: bytes) -> Listing:
    return Listing(node for node in NODES if node.node not in gone)


def kept(guards: Guards) -> bytes | None:
    last = None
    while (event := guards.next_event()) is not None:
        assert isinstance(event, Record)
        assert event.record == GUARDS_RECORD
        last = event.data
    return last


def test_guards_are_drawn_once_and_survive_restarts() -> None:
    guards = Guards(3, HOME, Random(1), None)
    chain = guards.chain(ALL, ())
    written = kept(guards)
    assert len(set(chain)) == 3
    assert HOME not in chain
    assert all(node in guards for node in chain)
    again = Guards(3, HOME, Random(2), written)
    assert again.chain(ALL, ()) == chain
    assert kept(again) is None


def test_an_absent_guard_has_a_deputy_and_gets_its_place_back() -> None:
    guards = Guards(3, HOME, Random(1), None)
    first, second, third = guards.chain(ALL, ())
    changed = guards.chain(without(second), ())
    assert (changed[0], changed[2]) == (first, third)
    assert changed[1] not in (first, second, third)
    assert guards.chain(without(second), ()) == changed
    assert guards.chain(ALL, (changed[1],)) == (first, second, third)
    assert guards.chain(ALL, (second,)) == changed
    assert guards.chain(ALL, ()) == (first, second, third)


def test_an_empty_listing_changes_nothing() -> None:
    guards = Guards(3, HOME, Random(1), None)
    chain = guards.chain(ALL, ())
    kept(guards)
    assert guards.chain(Listing(()), ()) == ()
    assert kept(guards) is None
    assert guards.chain(ALL, ()) == chain


def test_a_small_network_has_a_shorter_chain() -> None:
    guards = Guards(3, HOME, Random(1), None)
    assert len(guards.chain(Listing(NODES[:2]), ())) == 1
    assert guards.chain(Listing(NODES[:1]), ()) == ()
    assert len(guards.chain(ALL, ())) == 3


@given(st.lists(st.sets(st.integers(1, 11), max_size=9), max_size=12))
def test_the_number_of_deputies_is_bounded(away: list[set[int]]) -> None:
    guards = Guards(3, HOME, Random(1), None)
    for gone in away:
        listing = without(*(NODES[number].node for number in gone))
        chain = guards.chain(listing, ())
        assert len(set(chain)) == len(chain)
        assert all(node in listing for node in chain)
        assert all(len(place) <= 1 + DEPUTIES_MAX for place in guards._places)


@pytest.mark.parametrize("data", [b"", b"junk", b"\x91\x91\xc4\x01x"])
def test_a_damaged_record_is_detected(data: bytes) -> None:
    with pytest.raises(TamperedError):
        Guards(3, HOME, Random(1), data)


def test_a_doubted_guard_keeps_its_place_and_gets_no_new_one() -> None:
    guards = Guards(3, HOME, Random(1), None)
    first, second, third = guards.chain(ALL, ())
    assert guards.chain(ALL, (), (first, second, third)) == (first, second, third)
    others = [node.node for node in NODES if node.node not in (HOME, first, second, third)]
    trusted, doubted = others[0], others[1:]
    assert guards.chain(ALL, (second,), doubted) == (first, trusted, third)
    assert guards.chain(ALL, (), (second,)) == (first, trusted, third)
    assert guards.chain(ALL, (second, trusted), doubted)[1] in doubted


def test_if_all_nodes_were_guards_one_of_another_place_stands_in() -> None:
    guards = Guards(2, HOME, Random(1), None)
    few = Listing(NODES[:5])
    first, second = guards.chain(few, ())
    third = guards.chain(few, (second,))[1]
    fourth = guards.chain(few, (first,))[0]
    assert len({first, second, third, fourth}) == 4
    chain = guards.chain(few, (second, third))
    assert chain[0] == first
    assert chain[1] == fourth
    assert set(guards.chain(few, (first, second))) == {third, fourth}

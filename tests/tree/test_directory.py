from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.directory_desk import (
    ALICE,
    BOB,
    CAROL,
    CONFIG,
    KEYRING,
    LEASE_US,
    STATE,
    STREAM,
    Desk,
    fetch,
    name_of,
)
from support.listed_nodes import EPOCH_US, FIRST, NOW, SECOND, address_of, make_members
from veilcast.authority import issuer
from veilcast.authority.bulletin import Bulletin
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.statement import sign_statement
from veilcast.errors import TamperedError
from veilcast.machine import Address
from veilcast.tree.descriptor import _PURPOSE, AHEAD_US, _body, build_descriptor
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import encode
from veilcast.wire.geometry import PAGE_NODES
from veilcast.wire.tree import EnrolNode, ListingPage, NodeEnrolled, RefusalCode, RequestAck, RequestRefused


def test_who_enrols_is_listed_with_its_address_and_the_key_of_its_membership() -> None:
    desk = Desk()
    assert desk.enrol(ALICE, NOW, address_of(1)) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert desk.enrol(BOB, NOW, address_of(2)) == [NodeEnrolled(7, NOW + LEASE_US)]
    listing = desk.listing(NOW)
    assert listing.ids == tuple(sorted((name_of(ALICE), name_of(BOB))))
    place = listing.numbered(name_of(BOB))
    assert place is not None
    assert listing.nodes[place].address == address_of(2)
    assert listing.boxes[place] == BOB.membership.certificate.leaf.subject
    assert (listing.since[place], listing.until[place]) == (NOW, NOW + LEASE_US)


def test_who_renews_stays_since_when_it_came_and_who_does_not_falls_out() -> None:
    desk = Desk()
    for keyring in (ALICE, BOB):
        desk.enrol(keyring, NOW)
    desk.enrol(ALICE, NOW + LEASE_US // 2)
    desk.wait(NOW + LEASE_US)
    listing = desk.listing(NOW + LEASE_US)
    assert listing.ids == (name_of(ALICE),)
    assert (listing.since, listing.until) == ((NOW,), (NOW + LEASE_US * 3 // 2,))
    assert len(desk.disk) == 1
    later = NOW + LEASE_US + 5 * SECOND
    desk.enrol(BOB, later)
    assert sorted(desk.listing(later).since) == [NOW, later]


def test_nothing_is_confirmed_before_it_is_on_the_disk() -> None:
    desk = Desk()
    desk.writes = False
    assert desk.enrol(ALICE, NOW) == []
    desk.directory.stored(1, NOW + 1)
    assert desk.turn(NOW + 1) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_a_directory_that_starts_anew_knows_who_was_there_and_since_when_and_gives_each_a_lease() -> None:
    desk = Desk()
    for keyring in (ALICE, BOB):
        desk.enrol(keyring, NOW)
    later = NOW + 1_000 * SECOND
    desk.start(later)
    desk.enrol(ALICE, later)
    listing = desk.listing(later)
    assert listing.ids == tuple(sorted((name_of(ALICE), name_of(BOB))))
    assert listing.since == (NOW, NOW)
    assert listing.version > NOW
    desk.enrol(ALICE, later + LEASE_US // 2)
    desk.wait(later + LEASE_US)
    assert desk.listing(later + LEASE_US).ids == (name_of(ALICE),)


def test_a_damaged_disk_is_not_trusted() -> None:
    desk = Desk()
    desk.disk[1] = b"\xc1"
    with pytest.raises(TamperedError):
        desk.start(NOW)


def test_whoever_moves_is_listed_at_its_new_place_only_and_stays_who_it_is() -> None:
    desk = Desk()
    desk.enrol(ALICE, NOW, address_of(1))
    assert desk.enrol(ALICE, NOW + SECOND, address_of(2))
    listing = desk.listing(NOW + SECOND)
    assert (listing.addresses, listing.since) == ((address_of(2),), (NOW,))
    assert len(desk.disk) == 1


def test_an_old_descriptor_neither_moves_a_node_nor_keeps_one_listed_that_is_gone() -> None:
    desk = Desk()
    old = build_descriptor(ALICE, address_of(1), 7, NOW)
    desk.ask(old, NOW)
    desk.enrol(ALICE, NOW + SECOND, address_of(2))
    assert desk.ask(old, NOW + 2 * SECOND) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert desk.listing(NOW + 2 * SECOND).addresses == (address_of(2),)
    desk.wait(NOW + SECOND + LEASE_US)
    assert desk.ask(old, NOW + SECOND + LEASE_US) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert desk.directory.sizes()["nodes"] == 0


def test_a_descriptor_that_comes_late_keeps_nobody_listed_for_longer() -> None:
    desk = Desk()
    played = build_descriptor(BOB, address_of(3), 7, NOW)
    assert desk.ask(played, NOW + LEASE_US // 2) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert desk.directory.next_timer() == NOW + LEASE_US


def test_a_repeated_request_gets_the_same_answer_and_changes_nothing() -> None:
    desk = Desk()
    again = build_descriptor(ALICE, address_of(1), 7, NOW)
    assert desk.ask(again, NOW) == desk.ask(again, NOW + SECOND) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert len(desk.disk) == 1


@pytest.mark.parametrize(
    "forged",
    [
        build_descriptor(KEYRING, address_of(1), 7, NOW),
        msgspec.structs.replace(build_descriptor(ALICE, address_of(1), 7, NOW), address="elsewhere"),
        msgspec.structs.replace(build_descriptor(ALICE, address_of(1), 7, NOW), issued_us=NOW + 1),
        msgspec.structs.replace(
            build_descriptor(ALICE, address_of(1), 7, NOW), box=BOB.membership.certificate.leaf.subject
        ),
        msgspec.structs.replace(
            build_descriptor(ALICE, address_of(1), 7, NOW),
            certificates=build_descriptor(BOB, address_of(1), 7, NOW).certificates,
        ),
        build_descriptor(ALICE, address_of(1), 7, NOW - LEASE_US),
        build_descriptor(ALICE, address_of(1), 7, NOW + AHEAD_US + 1),
    ],
    ids=["a directory", "address", "time", "box", "certificates", "too old", "to come"],
)
def test_only_a_member_says_where_it_is_and_only_of_itself_and_of_now(forged: EnrolNode) -> None:
    """Every forger knows the network key."""
    desk = Desk()
    assert desk.ask(MembershipProver(BOB).prove(forged), NOW) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert desk.directory.sizes()["nodes"] == 0
    assert desk.directory.refused.total() == 1


def test_a_member_whose_box_is_not_its_memberships_key_is_refused() -> None:
    """A member can sign anything; but what is sealed for its name must be for its certified key."""
    signed = sign_statement(ALICE, _body(address_of(1), b"b" * 32, 0, NOW), purpose=_PURPOSE)
    forged = MembershipProver(ALICE).prove(EnrolNode(7, address_of(1), b"b" * 32, 0, NOW, *signed))
    assert Desk().ask(forged, NOW) == [RequestRefused(7, RefusalCode.MALFORMED)]


def test_who_is_revoked_can_renew_no_more() -> None:
    ended = issuer.revoke(STATE, "node 0", None, FIRST, bytes)
    assert isinstance(ended.bulletin, Bulletin)
    revoked = RevokedKeys(KEYRING.root, 10)
    revoked.add(ended.bulletin, FIRST)
    desk = Desk(revoked=revoked)
    assert desk.enrol(ALICE, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert desk.enrol(ALICE, NOW + EPOCH_US) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert desk.enrol(BOB, NOW + EPOCH_US) == [NodeEnrolled(7, NOW + EPOCH_US + LEASE_US)]


def test_an_edition_stands_for_a_while_and_those_in_the_middle_of_one_can_finish_it() -> None:
    desk = Desk()
    desk.enrol(ALICE, NOW)
    first = desk.listing(NOW)
    desk.enrol(BOB, NOW + SECOND)
    assert desk.listing(NOW + 4 * SECOND).version == first.version
    second = desk.listing(NOW + 5 * SECOND)
    assert (len(first), len(second)) == (1, 2)
    (page,) = desk.ask(fetch(3, first.version, 0), NOW + 6 * SECOND)
    assert isinstance(page, ListingPage)
    assert page.nodes == first.nodes
    quiet = desk.listing(NOW + 100 * SECOND)
    assert quiet.version == second.version
    assert desk.listing(NOW + 5 * SECOND + 300 * SECOND).version > second.version


def test_no_more_editions_are_kept_than_the_bound_and_older_ones_are_unknown() -> None:
    desk = Desk()
    desk.enrol(ALICE, NOW)
    first = desk.listing(NOW)
    for number in range(1, CONFIG.versions + 1):
        desk.enrol(ALICE, NOW + number * 5 * SECOND)
        desk.listing(NOW + number * 5 * SECOND)
    assert desk.directory.sizes()["editions"] == CONFIG.versions
    now = NOW + 100 * SECOND
    assert desk.ask(fetch(3, first.version, 0), now) == [RequestRefused(3, RefusalCode.UNKNOWN)]
    assert desk.ask(fetch(3, desk.listing(now).version, 1), now) == [RequestRefused(3, RefusalCode.UNKNOWN)]


def test_no_more_nodes_are_listed_than_the_bound() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, nodes_max=2))
    for keyring in (ALICE, BOB):
        desk.enrol(keyring, NOW)
    assert desk.enrol(CAROL, NOW) == [RequestRefused(7, RefusalCode.FULL)]
    assert desk.enrol(ALICE, NOW + SECOND) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]
    desk.wait(NOW + LEASE_US)
    assert desk.enrol(CAROL, NOW + LEASE_US) == [NodeEnrolled(7, NOW + 2 * LEASE_US)]


def test_no_more_callers_are_remembered_than_the_bound_and_each_has_its_allowance() -> None:
    config = msgspec.structs.replace(CONFIG, callers_max=3, requests_burst=2, requests_every_us=SECOND)
    desk = Desk(config)
    for number in range(10):
        desk.ask(fetch(1, 0, None), NOW, Address(f"in:{number}"))
    assert desk.directory.sizes()["callers"] == 3
    assert [len(desk.ask(fetch(1, 0, None), NOW)) for _ in range(4)] == [1, 1, 0, 0]
    assert desk.directory.refused["ExcessError"] == 2
    desk.directory.peer_lost(STREAM, NOW)
    assert desk.directory.sizes()["callers"] == 2


@given(st.binary(max_size=200) | st.just(encode(RequestAck(1))))
def test_whatever_strangers_send_it_stays_silent(data: bytes) -> None:
    assert Desk().ask(data, NOW) == []


def test_a_listing_of_several_pages_comes_whole() -> None:
    desk = Desk()
    _, _, many = make_members(PAGE_NODES + 2)
    for number, keyring in enumerate(many):
        desk.enrol(keyring, NOW, address_of(number))
    assert len(desk.listing(NOW)) == PAGE_NODES + 2

"""The directory: enrolment, renewal, moves, listings, and the bound of each table."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.directory_host import (
    ALICE,
    BOB,
    CAROL,
    CONFIG,
    KEYRING,
    LEASE_US,
    STATE,
    STREAM,
    DirectoryHost,
    fetch,
    name_of,
)
from support.listed_nodes import EPOCH_US, FIRST, NOW, SECOND, address_of, make_members
from veilcast.authority import issuer
from veilcast.authority.bulletin import Bulletin
from veilcast.authority.member_statement import sign_statement
from veilcast.authority.revocation import RevokedKeys
from veilcast.errors import TamperedError
from veilcast.machine import Address
from veilcast.tree.descriptor import _PURPOSE, AHEAD_US, _body, build_descriptor
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import encode
from veilcast.wire.geometry import PAGE_NODES
from veilcast.wire.tree import EnrolNode, ListingPage, NodeEnrolled, RefusalCode, RequestAck, RequestRefused


def test_an_enrolled_node_is_listed_with_its_address_and_membership_key() -> None:
    host = DirectoryHost()
    assert host.enrol(ALICE, NOW, address_of(1)) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert host.enrol(BOB, NOW, address_of(2)) == [NodeEnrolled(7, NOW + LEASE_US)]
    listing = host.listing(NOW)
    assert listing.ids == tuple(sorted((name_of(ALICE), name_of(BOB))))
    place = listing.index_of(name_of(BOB))
    assert place is not None
    assert listing.nodes[place].address == address_of(2)
    assert listing.boxes[place] == BOB.membership.certificate.leaf.subject
    assert (listing.since[place], listing.until[place]) == (NOW, NOW + LEASE_US)


def test_a_renewing_node_keeps_its_age_and_a_silent_one_drops_out() -> None:
    host = DirectoryHost()
    for keyring in (ALICE, BOB):
        host.enrol(keyring, NOW)
    host.enrol(ALICE, NOW + LEASE_US // 2)
    host.wait(NOW + LEASE_US)
    listing = host.listing(NOW + LEASE_US)
    assert listing.ids == (name_of(ALICE),)
    assert (listing.since, listing.until) == ((NOW,), (NOW + LEASE_US * 3 // 2,))
    assert len(host.disk) == 1
    later = NOW + LEASE_US + 5 * SECOND
    host.enrol(BOB, later)
    assert sorted(host.listing(later).since) == [NOW, later]


def test_an_enrolment_is_confirmed_only_when_durable() -> None:
    host = DirectoryHost()
    host.writes = False
    assert host.enrol(ALICE, NOW) == []
    host.directory.stored(1, NOW + 1)
    assert host.turn(NOW + 1) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_a_restarted_directory_knows_its_nodes_and_their_age_and_gives_each_a_lease() -> None:
    host = DirectoryHost()
    for keyring in (ALICE, BOB):
        host.enrol(keyring, NOW)
    later = NOW + 1_000 * SECOND
    host.start(later)
    host.enrol(ALICE, later)
    listing = host.listing(later)
    assert listing.ids == tuple(sorted((name_of(ALICE), name_of(BOB))))
    assert listing.since == (NOW, NOW)
    assert listing.version > NOW
    host.enrol(ALICE, later + LEASE_US // 2)
    host.wait(later + LEASE_US)
    assert host.listing(later + LEASE_US).ids == (name_of(ALICE),)


def test_a_damaged_disk_is_not_trusted() -> None:
    host = DirectoryHost()
    host.disk[1] = b"\xc1"
    with pytest.raises(TamperedError):
        host.start(NOW)


def test_a_moved_node_is_listed_only_at_its_new_address() -> None:
    host = DirectoryHost()
    host.enrol(ALICE, NOW, address_of(1))
    assert host.enrol(ALICE, NOW + SECOND, address_of(2))
    listing = host.listing(NOW + SECOND)
    assert (listing.addresses, listing.since) == ((address_of(2),), (NOW,))
    assert len(host.disk) == 1


def test_a_replayed_descriptor_neither_moves_a_node_nor_keeps_a_departed_one_listed() -> None:
    host = DirectoryHost()
    old = build_descriptor(ALICE, address_of(1), 7, NOW)
    host.ask(old, NOW)
    host.enrol(ALICE, NOW + SECOND, address_of(2))
    assert host.ask(old, NOW + 2 * SECOND) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert host.listing(NOW + 2 * SECOND).addresses == (address_of(2),)
    host.wait(NOW + SECOND + LEASE_US)
    assert host.ask(old, NOW + SECOND + LEASE_US) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert host.directory.sizes()["nodes"] == 0


def test_a_delayed_descriptor_does_not_extend_a_lease() -> None:
    host = DirectoryHost()
    played = build_descriptor(BOB, address_of(3), 7, NOW)
    assert host.ask(played, NOW + LEASE_US // 2) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert host.directory.next_timer() == NOW + LEASE_US


def test_a_repeated_request_gets_the_same_answer_and_changes_nothing() -> None:
    host = DirectoryHost()
    again = build_descriptor(ALICE, address_of(1), 7, NOW)
    assert host.ask(again, NOW) == host.ask(again, NOW + SECOND) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert len(host.disk) == 1


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
def test_only_a_member_can_describe_itself_and_only_for_now(forged: EnrolNode) -> None:
    """Every forger knows the network key."""
    host = DirectoryHost()
    assert host.ask(MembershipProver(BOB).prove(forged), NOW) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert host.directory.sizes()["nodes"] == 0
    assert host.directory.refused.total() == 1


def test_a_member_whose_box_is_not_its_memberships_key_is_refused() -> None:
    """A member can sign anything; but messages sealed for its name must use its certified key."""
    signed = sign_statement(ALICE, _body(address_of(1), b"b" * 32, 0, NOW), purpose=_PURPOSE)
    forged = MembershipProver(ALICE).prove(EnrolNode(7, address_of(1), b"b" * 32, 0, NOW, *signed))
    assert DirectoryHost().ask(forged, NOW) == [RequestRefused(7, RefusalCode.MALFORMED)]


def test_a_revoked_node_cannot_renew() -> None:
    ended = issuer.revoke(STATE, "node 0", None, FIRST, bytes)
    assert isinstance(ended.bulletin, Bulletin)
    revoked = RevokedKeys(KEYRING.root, 10)
    revoked.add(ended.bulletin, FIRST)
    host = DirectoryHost(revoked=revoked)
    assert host.enrol(ALICE, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert host.enrol(ALICE, NOW + EPOCH_US) == [RequestRefused(7, RefusalCode.MALFORMED)]
    assert host.enrol(BOB, NOW + EPOCH_US) == [NodeEnrolled(7, NOW + EPOCH_US + LEASE_US)]


def test_a_started_download_can_finish_after_a_new_listing() -> None:
    host = DirectoryHost()
    host.enrol(ALICE, NOW)
    first = host.listing(NOW)
    host.enrol(BOB, NOW + SECOND)
    assert host.listing(NOW + 4 * SECOND).version == first.version
    second = host.listing(NOW + 5 * SECOND)
    assert (len(first), len(second)) == (1, 2)
    (page,) = host.ask(fetch(3, first.version, 0), NOW + 6 * SECOND)
    assert isinstance(page, ListingPage)
    assert page.nodes == first.nodes
    quiet = host.listing(NOW + 100 * SECOND)
    assert quiet.version == second.version
    assert host.listing(NOW + 5 * SECOND + 300 * SECOND).version > second.version


def test_the_number_of_served_listings_is_bounded() -> None:
    host = DirectoryHost()
    host.enrol(ALICE, NOW)
    first = host.listing(NOW)
    for number in range(1, CONFIG.versions + 1):
        host.enrol(ALICE, NOW + number * 5 * SECOND)
        host.listing(NOW + number * 5 * SECOND)
    assert host.directory.sizes()["editions"] == CONFIG.versions
    now = NOW + 100 * SECOND
    assert host.ask(fetch(3, first.version, 0), now) == [RequestRefused(3, RefusalCode.UNKNOWN)]
    assert host.ask(fetch(3, host.listing(now).version, 1), now) == [RequestRefused(3, RefusalCode.UNKNOWN)]


def test_the_number_of_listed_nodes_is_bounded() -> None:
    host = DirectoryHost(msgspec.structs.replace(CONFIG, nodes_max=2))
    for keyring in (ALICE, BOB):
        host.enrol(keyring, NOW)
    assert host.enrol(CAROL, NOW) == [RequestRefused(7, RefusalCode.FULL)]
    assert host.enrol(ALICE, NOW + SECOND) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]
    host.wait(NOW + LEASE_US)
    assert host.enrol(CAROL, NOW + LEASE_US) == [NodeEnrolled(7, NOW + 2 * LEASE_US)]


def test_streams_are_rate_limited_and_their_table_is_bounded() -> None:
    config = msgspec.structs.replace(CONFIG, callers_max=3, requests_burst=2, requests_every_us=SECOND)
    host = DirectoryHost(config)
    for number in range(10):
        host.ask(fetch(1, 0, None), NOW, Address(f"in:{number}"))
    assert host.directory.sizes()["callers"] == 3
    assert [len(host.ask(fetch(1, 0, None), NOW)) for _ in range(4)] == [1, 1, 0, 0]
    assert host.directory.refused["ExcessError"] == 2
    host.directory.peer_lost(STREAM, NOW)
    assert host.directory.sizes()["callers"] == 2


@given(st.binary(max_size=200) | st.just(encode(RequestAck(1))))
def test_the_directory_does_not_answer_outsiders(data: bytes) -> None:
    assert DirectoryHost().ask(data, NOW) == []


def test_a_listing_of_several_pages_arrives_complete() -> None:
    host = DirectoryHost()
    _, _, many = make_members(PAGE_NODES + 2)
    for number, keyring in enumerate(many):
        host.enrol(keyring, NOW, address_of(number))
    assert len(host.listing(NOW)) == PAGE_NODES + 2

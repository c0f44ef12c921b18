"""What strangers, members and sub-authorities cannot make a directory do."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.directory_desk import ALICE, BOB, CAROL, CONFIG, LEASE_US, NODES, STATE, Desk, fetch, name_of
from support.listed_nodes import EPOCHS, FIRST, NOW, SECOND, address_of, make_members
from veilcast.authority import issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import derive_onion_key, derive_tls_key
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.x509 import certify_leaf, read_leaf
from veilcast.machine import Address
from veilcast.tree.descriptor import _HOLDS, _PURPOSE, AHEAD_US, _body, build_descriptor
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import encode
from veilcast.wire.tree import EnrolNode, FetchListing, ListingPage, NodeEnrolled, RefusalCode, RequestRefused

ENTROPY = random.Random(12).randbytes
STRANGER = issuer.grant_ready(issuer.create(3_600_000_000, ENTROPY), "x", [], FIRST, EPOCHS, ENTROPY, "member")[1]
_, SUB = issuer.delegate(STATE, "sub", FIRST, EPOCHS, ENTROPY)
_, OTHER = issuer.delegate(STATE, "other", FIRST, EPOCHS, ENTROPY)
_, DORA = issuer.grant_ready(SUB, "dora", [], FIRST, EPOCHS, ENTROPY, "member")
REFUSED, LIMITED = [RequestRefused(7, RefusalCode.MALFORMED)], [RequestRefused(7, RefusalCode.LIMITED)]


def onion_of(keyring: Keyring) -> Address:
    return Address(f"{derive_onion_key(keyring.membership.link).host}:80")


def unproven(count: int) -> list[EnrolNode]:
    """Descriptors whose signature does not hold, as a member sends them."""
    bad = msgspec.structs.replace(build_descriptor(BOB, address_of(1), 7, NOW), signature=bytes(64))
    return [MembershipProver(BOB).prove(msgspec.structs.replace(bad, since_us=number)) for number in range(count)]


def certified_as(name: bytes, signer: issuer.Authority, holder: Keyring) -> Keyring:
    """The holder's keyring, with a certificate of this authority under any name."""
    assert holder.membership.tls
    _, own = issuer.grant_ready(signer, "puppet", [], FIRST, EPOCHS, ENTROPY, "member")
    leaf = read_leaf(own.membership.tls[0])
    public = derive_tls_key(holder.membership.link).public
    forged = certify_leaf(signer.key, msgspec.structs.replace(leaf, name=name, public=public))
    tls = (forged, *own.membership.tls[1:])
    return msgspec.structs.replace(holder, membership=msgspec.structs.replace(holder.membership, tls=tls))


def in_the_name_of(victim: Keyring, puppet: Keyring, address: Address, now: int) -> EnrolNode:
    """A descriptor of the victim's box, signed by a key that an authority certified under the victim's name."""
    box = victim.membership.certificate.leaf.subject
    body = _body(address, box, 0, now)
    signature = derive_tls_key(puppet.membership.link).sign(body, purpose=_PURPOSE)
    return MembershipProver(puppet).prove(EnrolNode(7, address, box, 0, now, puppet.membership.tls[:-1], signature))


def test_a_request_without_the_network_key_is_not_answered_and_charged_to_nobody() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, enrols_burst=1, enrols_every_us=SECOND))
    desk.enrol(ALICE, NOW)
    for request in (
        FetchListing(1, 0, None),
        FetchListing(1, desk.listing(NOW).version, 0),
        MembershipProver(STRANGER).prove(FetchListing(1, 0, None)),
        msgspec.structs.replace(fetch(1, 0, None), version=1),
        build_descriptor(STRANGER, address_of(1), 7, NOW),
        msgspec.structs.replace(build_descriptor(BOB, address_of(1), 7, NOW), proof=None),
        *(msgspec.structs.replace(each, proof=bytes(32)) for each in unproven(50)),
    ):
        assert desk.ask(request, NOW) == []
    assert desk.enrol(CAROL, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_an_answer_of_the_directory_is_large_so_only_members_get_one() -> None:
    desk = Desk()
    for number, keyring in enumerate(make_members(40)[2]):
        desk.enrol(keyring, NOW, address_of(number))
    asked = fetch(1, desk.listing(NOW).version, 0)
    (page,) = desk.ask(asked, NOW)
    assert isinstance(page, ListingPage)
    assert len(encode(page)) > 40 * len(encode(asked))
    assert desk.ask(msgspec.structs.replace(asked, proof=None), NOW) == []


def test_honest_nodes_may_all_come_at_once() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, enrols_burst=1, enrols_every_us=SECOND))
    assert [desk.enrol(keyring, NOW) for keyring in NODES] == [[NodeEnrolled(7, NOW + LEASE_US)]] * len(NODES)


def test_a_member_that_floods_bad_descriptors_shuts_out_no_node_that_is_listed() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, enrols_burst=2, enrols_every_us=SECOND))
    desk.enrol(ALICE, NOW)
    assert [desk.ask(each, NOW) for each in unproven(4)] == [REFUSED, REFUSED, LIMITED, LIMITED]
    assert desk.enrol(CAROL, NOW) == LIMITED
    assert desk.enrol(ALICE, NOW + 1) == [NodeEnrolled(7, NOW + 1 + LEASE_US)]
    assert desk.enrol(CAROL, NOW + SECOND) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]


def test_a_flood_of_bad_descriptors_shuts_out_no_listed_node_after_the_directory_has_started_anew() -> None:
    """Nor a node whose certificates are other ones than when it came: the last ones that it showed are on the disk."""
    desk = Desk(msgspec.structs.replace(CONFIG, enrols_burst=2, enrols_every_us=SECOND))
    desk.enrol(ALICE, NOW)
    leaf = read_leaf(BOB.membership.tls[0])
    longer = certify_leaf(STATE.key, msgspec.structs.replace(leaf, last_s=leaf.last_s + 1))
    tls = (longer, *BOB.membership.tls[1:])
    again = msgspec.structs.replace(BOB, membership=msgspec.structs.replace(BOB.membership, tls=tls))
    for keyring in (BOB, again):
        desk.enrol(keyring, NOW)
    desk.start(NOW + SECOND)
    assert [desk.ask(each, NOW + SECOND) for each in unproven(4)] == [REFUSED, REFUSED, LIMITED, LIMITED]
    for keyring in (ALICE, again):
        assert desk.enrol(keyring, NOW + SECOND + 1) == [NodeEnrolled(7, NOW + SECOND + 1 + LEASE_US)]


def test_a_node_that_moves_all_the_time_is_heard_only_so_often() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, renewals_burst=3))
    answers = [desk.enrol(ALICE, NOW + number, address_of(number)) for number in range(20)]
    assert [answer == LIMITED for answer in answers] == [False] * 4 + [True] * 16
    assert desk.listing(NOW + 20).addresses == (address_of(3),)


def test_an_onion_address_is_listed_for_the_holder_of_its_key_alone() -> None:
    desk, hers = Desk(), onion_of(ALICE)
    true = build_descriptor(ALICE, hers, 7, NOW)
    assert desk.ask(true, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    his = build_descriptor(BOB, hers, 7, NOW)
    body = _body(hers, his.box, his.since_us, NOW)
    for holds in (None, true.holds, derive_onion_key(BOB.membership.link).sign(body, purpose=_HOLDS), bytes(64)):
        assert desk.ask(MembershipProver(BOB).prove(msgspec.structs.replace(his, holds=holds)), NOW) == REFUSED
    for place in (f"{'a' * 56}.onion:80", "x.onion:80", ".onion:80"):
        assert desk.enrol(BOB, NOW, Address(place)) == REFUSED
    assert desk.listing(NOW).addresses == (hers,)


@pytest.mark.parametrize("place", ["ONION", "onion"])
def test_an_onion_address_in_another_spelling_is_no_way_around_the_proof(place: str) -> None:
    """No node calls another spelling: through Tor, a node calls addresses of the one form that is checked."""
    from veilcast.net.onion import ONION_ADDRESS

    host = onion_of(ALICE).removesuffix(":80")
    written = Address(f"{host.upper() if place == 'ONION' else host + '.'}:80")
    assert ONION_ADDRESS.fullmatch(written) is None


def test_a_descriptor_is_of_at_most_some_seconds_to_come() -> None:
    assert AHEAD_US <= 10 * SECOND
    desk = Desk()
    assert desk.ask(build_descriptor(ALICE, address_of(1), 7, NOW + AHEAD_US + 1), NOW) == REFUSED
    assert desk.ask(build_descriptor(ALICE, address_of(1), 7, NOW + AHEAD_US), NOW) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_an_old_descriptor_moves_no_node_after_the_directory_has_started_anew() -> None:
    desk = Desk()
    old = build_descriptor(ALICE, address_of(1), 7, NOW)
    desk.ask(old, NOW)
    desk.enrol(ALICE, NOW + SECOND, address_of(2))
    desk.start(NOW + 2 * SECOND)
    assert desk.ask(old, NOW + 2 * SECOND) == REFUSED
    assert desk.listing(NOW + 2 * SECOND).addresses == (address_of(2),)


def test_a_sub_authority_moves_no_node_that_another_authority_certified() -> None:
    """The sub-authority may certify members, and writes any name into their certificates."""
    desk = Desk()
    desk.enrol(ALICE, NOW, address_of(1))
    desk.enrol(DORA, NOW, address_of(2))
    evil = Address("evil.example:1")
    for restarted in (False, True):
        if restarted:
            desk.start(NOW + SECOND)
        for victim, signer in ((ALICE, SUB), (DORA, OTHER)):
            puppet = certified_as(name_of(victim), signer, BOB)
            assert desk.ask(in_the_name_of(victim, puppet, evil, NOW + SECOND), NOW + SECOND) == REFUSED
    assert set(desk.listing(NOW + SECOND).addresses) == {address_of(1), address_of(2)}
    assert desk.enrol(DORA, NOW + 2 * SECOND, address_of(3)) == [NodeEnrolled(7, NOW + 2 * SECOND + LEASE_US)]


def test_the_root_takes_a_name_back_that_a_sub_authority_gave_away() -> None:
    desk = Desk()
    puppet = certified_as(name_of(ALICE), SUB, BOB)
    assert desk.ask(in_the_name_of(ALICE, puppet, address_of(9), NOW), NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert desk.enrol(ALICE, NOW + SECOND, address_of(9)) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]
    later = in_the_name_of(ALICE, puppet, address_of(8), NOW + 2 * SECOND)
    assert desk.ask(later, NOW + 2 * SECOND) == REFUSED
    assert desk.listing(NOW + 2 * SECOND).ids == (fingerprint(ALICE.membership.certificate.leaf.subject),)


@pytest.mark.parametrize("ahead_us", [0, AHEAD_US])
def test_a_sub_authority_that_renews_all_the_time_does_not_keep_the_roots_member_out(ahead_us: int) -> None:
    """Its descriptors are of the latest time that the directory takes, and use up the allowance of the name."""
    desk = Desk()
    puppet = certified_as(name_of(ALICE), SUB, BOB)
    for number in range(40):
        now = NOW + number * SECOND // 4
        desk.ask(in_the_name_of(ALICE, puppet, address_of(9), now + ahead_us), now)
    later = NOW + 10 * SECOND
    assert desk.enrol(ALICE, later, address_of(1)) == [NodeEnrolled(7, later + LEASE_US)]
    assert desk.ask(in_the_name_of(ALICE, puppet, address_of(9), later + AHEAD_US), later) == REFUSED
    (node,) = desk.listing(later).nodes
    assert (node.address, node.since_us) == (address_of(1), later)
    assert len(desk.disk) == 1


@given(
    st.text(min_size=1, max_size=40) | st.from_regex(r"[a-z2-7]{56}\.onion:80", fullmatch=True),
    st.none() | st.binary(min_size=64, max_size=64),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_whatever_a_member_describes_it_is_refused_or_listed_and_nothing_is_raised(
    address: str, holds: bytes | None, flips: list[tuple[int, int]]
) -> None:
    """A member signs any address, and changes any byte of its certificate; it has the network key."""
    honest = build_descriptor(BOB, Address(address), 7, NOW)
    certificate = bytearray(honest.certificates[0])
    for place, value in flips:
        certificate[place % len(certificate)] = value
    forged = msgspec.structs.replace(honest, holds=holds, certificates=(bytes(certificate),))
    (answer,) = Desk().ask(MembershipProver(BOB).prove(forged), NOW)
    assert isinstance(answer, RequestRefused | NodeEnrolled)
    assert isinstance(answer, RequestRefused) or (
        bytes(certificate) == honest.certificates[0] and ".onion:" not in address
    )

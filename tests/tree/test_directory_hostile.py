"""What outsiders, members and sub-authorities cannot make a directory do."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.directory_host import ALICE, BOB, CAROL, CONFIG, LEASE_US, NODES, STATE, DirectoryHost, fetch, name_of
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
    """Descriptors with an invalid signature, as a member sends them."""
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


def test_a_request_without_the_network_key_is_neither_answered_nor_charged() -> None:
    host = DirectoryHost(msgspec.structs.replace(CONFIG, enrols_burst=1, enrols_every_us=SECOND))
    host.enrol(ALICE, NOW)
    for request in (
        FetchListing(1, 0, None),
        FetchListing(1, host.listing(NOW).version, 0),
        MembershipProver(STRANGER).prove(FetchListing(1, 0, None)),
        msgspec.structs.replace(fetch(1, 0, None), version=1),
        build_descriptor(STRANGER, address_of(1), 7, NOW),
        msgspec.structs.replace(build_descriptor(BOB, address_of(1), 7, NOW), proof=None),
        *(msgspec.structs.replace(each, proof=bytes(32)) for each in unproven(50)),
    ):
        assert host.ask(request, NOW) == []
    assert host.enrol(CAROL, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_only_members_get_the_large_answers_of_the_directory() -> None:
    host = DirectoryHost()
    for number, keyring in enumerate(make_members(40)[2]):
        host.enrol(keyring, NOW, address_of(number))
    asked = fetch(1, host.listing(NOW).version, 0)
    (page,) = host.ask(asked, NOW)
    assert isinstance(page, ListingPage)
    assert len(encode(page)) > 40 * len(encode(asked))
    assert host.ask(msgspec.structs.replace(asked, proof=None), NOW) == []


def test_all_honest_nodes_can_enrol_at_once() -> None:
    host = DirectoryHost(msgspec.structs.replace(CONFIG, enrols_burst=1, enrols_every_us=SECOND))
    assert [host.enrol(keyring, NOW) for keyring in NODES] == [[NodeEnrolled(7, NOW + LEASE_US)]] * len(NODES)


def test_a_flood_of_bad_descriptors_shuts_out_no_listed_node() -> None:
    host = DirectoryHost(msgspec.structs.replace(CONFIG, enrols_burst=2, enrols_every_us=SECOND))
    host.enrol(ALICE, NOW)
    assert [host.ask(each, NOW) for each in unproven(4)] == [REFUSED, REFUSED, LIMITED, LIMITED]
    assert host.enrol(CAROL, NOW) == LIMITED
    assert host.enrol(ALICE, NOW + 1) == [NodeEnrolled(7, NOW + 1 + LEASE_US)]
    assert host.enrol(CAROL, NOW + SECOND) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]


def test_a_flood_of_bad_descriptors_shuts_out_no_listed_node_after_a_restart() -> None:
    """Nor a node whose certificates have changed since it enrolled: the disk has the last ones that it showed."""
    host = DirectoryHost(msgspec.structs.replace(CONFIG, enrols_burst=2, enrols_every_us=SECOND))
    host.enrol(ALICE, NOW)
    leaf = read_leaf(BOB.membership.tls[0])
    longer = certify_leaf(STATE.key, msgspec.structs.replace(leaf, last_s=leaf.last_s + 1))
    tls = (longer, *BOB.membership.tls[1:])
    again = msgspec.structs.replace(BOB, membership=msgspec.structs.replace(BOB.membership, tls=tls))
    for keyring in (BOB, again):
        host.enrol(keyring, NOW)
    host.start(NOW + SECOND)
    assert [host.ask(each, NOW + SECOND) for each in unproven(4)] == [REFUSED, REFUSED, LIMITED, LIMITED]
    for keyring in (ALICE, again):
        assert host.enrol(keyring, NOW + SECOND + 1) == [NodeEnrolled(7, NOW + SECOND + 1 + LEASE_US)]


def test_the_moves_of_a_node_are_rate_limited() -> None:
    host = DirectoryHost(msgspec.structs.replace(CONFIG, renewals_burst=3))
    answers = [host.enrol(ALICE, NOW + number, address_of(number)) for number in range(20)]
    assert [answer == LIMITED for answer in answers] == [False] * 4 + [True] * 16
    assert host.listing(NOW + 20).addresses == (address_of(3),)


def test_an_onion_address_is_listed_only_for_the_holder_of_its_key() -> None:
    host, hers = DirectoryHost(), onion_of(ALICE)
    true = build_descriptor(ALICE, hers, 7, NOW)
    assert host.ask(true, NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    his = build_descriptor(BOB, hers, 7, NOW)
    body = _body(hers, his.box, his.since_us, NOW)
    for holds in (None, true.holds, derive_onion_key(BOB.membership.link).sign(body, purpose=_HOLDS), bytes(64)):
        assert host.ask(MembershipProver(BOB).prove(msgspec.structs.replace(his, holds=holds)), NOW) == REFUSED
    for place in (f"{'a' * 56}.onion:80", "x.onion:80", ".onion:80"):
        assert host.enrol(BOB, NOW, Address(place)) == REFUSED
    assert host.listing(NOW).addresses == (hers,)


@pytest.mark.parametrize("place", ["ONION", "onion"])
def test_an_onion_address_in_another_spelling_needs_the_proof_too(place: str) -> None:
    """No node opens another spelling: through Tor, a node opens only addresses of the one form that is checked."""
    from veilcast.net.onion import ONION_ADDRESS

    host = onion_of(ALICE).removesuffix(":80")
    written = Address(f"{host.upper() if place == 'ONION' else host + '.'}:80")
    assert ONION_ADDRESS.fullmatch(written) is None


def test_a_descriptor_from_the_future_is_refused() -> None:
    assert AHEAD_US <= 10 * SECOND
    host = DirectoryHost()
    assert host.ask(build_descriptor(ALICE, address_of(1), 7, NOW + AHEAD_US + 1), NOW) == REFUSED
    assert host.ask(build_descriptor(ALICE, address_of(1), 7, NOW + AHEAD_US), NOW) == [NodeEnrolled(7, NOW + LEASE_US)]


def test_a_replayed_descriptor_moves_no_node_after_a_restart() -> None:
    host = DirectoryHost()
    old = build_descriptor(ALICE, address_of(1), 7, NOW)
    host.ask(old, NOW)
    host.enrol(ALICE, NOW + SECOND, address_of(2))
    host.start(NOW + 2 * SECOND)
    assert host.ask(old, NOW + 2 * SECOND) == REFUSED
    assert host.listing(NOW + 2 * SECOND).addresses == (address_of(2),)


def test_a_sub_authority_cannot_move_a_node_of_another_authority() -> None:
    """The sub-authority may certify members, and writes any name into their certificates."""
    host = DirectoryHost()
    host.enrol(ALICE, NOW, address_of(1))
    host.enrol(DORA, NOW, address_of(2))
    evil = Address("evil.example:1")
    for restarted in (False, True):
        if restarted:
            host.start(NOW + SECOND)
        for victim, signer in ((ALICE, SUB), (DORA, OTHER)):
            puppet = certified_as(name_of(victim), signer, BOB)
            assert host.ask(in_the_name_of(victim, puppet, evil, NOW + SECOND), NOW + SECOND) == REFUSED
    assert set(host.listing(NOW + SECOND).addresses) == {address_of(1), address_of(2)}
    assert host.enrol(DORA, NOW + 2 * SECOND, address_of(3)) == [NodeEnrolled(7, NOW + 2 * SECOND + LEASE_US)]


def test_the_root_can_reclaim_a_name_from_a_sub_authority() -> None:
    host = DirectoryHost()
    puppet = certified_as(name_of(ALICE), SUB, BOB)
    assert host.ask(in_the_name_of(ALICE, puppet, address_of(9), NOW), NOW) == [NodeEnrolled(7, NOW + LEASE_US)]
    assert host.enrol(ALICE, NOW + SECOND, address_of(9)) == [NodeEnrolled(7, NOW + SECOND + LEASE_US)]
    later = in_the_name_of(ALICE, puppet, address_of(8), NOW + 2 * SECOND)
    assert host.ask(later, NOW + 2 * SECOND) == REFUSED
    assert host.listing(NOW + 2 * SECOND).ids == (fingerprint(ALICE.membership.certificate.leaf.subject),)


@pytest.mark.parametrize("ahead_us", [0, AHEAD_US])
def test_a_sub_authority_that_keeps_renewing_cannot_shut_out_the_roots_member(ahead_us: int) -> None:
    """Its descriptors have the latest time that the directory accepts, and use up the rate limit of the name."""
    host = DirectoryHost()
    puppet = certified_as(name_of(ALICE), SUB, BOB)
    for number in range(40):
        now = NOW + number * SECOND // 4
        host.ask(in_the_name_of(ALICE, puppet, address_of(9), now + ahead_us), now)
    later = NOW + 10 * SECOND
    assert host.enrol(ALICE, later, address_of(1)) == [NodeEnrolled(7, later + LEASE_US)]
    assert host.ask(in_the_name_of(ALICE, puppet, address_of(9), later + AHEAD_US), later) == REFUSED
    (node,) = host.listing(later).nodes
    assert (node.address, node.since_us) == (address_of(1), later)
    assert len(host.disk) == 1


@given(
    st.text(min_size=1, max_size=40) | st.from_regex(r"[a-z2-7]{56}\.onion:80", fullmatch=True),
    st.none() | st.binary(min_size=64, max_size=64),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_any_descriptor_is_listed_or_refused_without_a_fault(
    address: str, holds: bytes | None, flips: list[tuple[int, int]]
) -> None:
    """A member signs any address, and changes any byte of its certificate; it has the network key."""
    honest = build_descriptor(BOB, Address(address), 7, NOW)
    certificate = bytearray(honest.certificates[0])
    for place, value in flips:
        certificate[place % len(certificate)] = value
    forged = msgspec.structs.replace(honest, holds=holds, certificates=(bytes(certificate),))
    (answer,) = DirectoryHost().ask(MembershipProver(BOB).prove(forged), NOW)
    assert isinstance(answer, RequestRefused | NodeEnrolled)
    assert isinstance(answer, RequestRefused) or (
        bytes(certificate) == honest.certificates[0] and ".onion:" not in address
    )

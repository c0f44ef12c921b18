from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.authority_members import EPOCHS, HOUR_US, NOW, TOPIC, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import Reply, complete_request, make_request, seal_reply
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole, derive_tls_key
from veilcast.authority.struct_codec import MAGIC_OF, VERSION, decode_struct, encode_struct
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.x509 import check_chain, read_leaf
from veilcast.errors import AuthorityError, ForgedError, MalformedError, RemoteError, StaleError, TamperedError

PEOPLE = make_authority_members()
ENTROPY = PEOPLE.entropy
LAST = NOW + EPOCHS - 1


def let_in(state: Authority, name: str, standing: TlsRole | None) -> tuple[Authority, Keyring]:
    return issuer.grant_ready(state, name, [], NOW, EPOCHS, ENTROPY, standing)


STATE, MEMBER = let_in(PEOPLE.authority, "dora", "member")
STATE, PROXY = let_in(STATE, "paul", "proxy")
STATE, SERVER = let_in(STATE, "susan", "server")
STATE, DIRECTORY = let_in(STATE, "dick", "directory")
STATE, BROKER = let_in(STATE, "bruno", "broker")
RINGS: dict[TlsRole, Keyring] = {
    "member": MEMBER,
    "proxy": PROXY,
    "server": SERVER,
    "directory": DIRECTORY,
    "broker": BROKER,
}


def shown(keyring: Keyring) -> bytes:
    return keyring.membership.tls[0]


def at(epoch: float) -> int:
    return int(epoch * HOUR_US)


@pytest.mark.parametrize("standing", RINGS)
def test_the_role_that_was_granted_is_the_role_that_is_shown(standing: TlsRole) -> None:
    keyring = RINGS[standing]
    check_chain(keyring.membership.tls, keyring.root)
    assert TlsIdentity(keyring).role == standing
    judging = next(other for other in RINGS.values() if other is not keyring)
    visitor = TlsIdentity(judging).make_judge(standing)(shown(keyring))
    visitor.check(at(NOW))
    assert visitor.name == f"{standing}:{fingerprint(keyring.membership.certificate.leaf.subject).hex()}"
    for other in RINGS:
        if other != standing:
            with pytest.raises(ForgedError, match="another role"):
                TlsIdentity(judging).make_judge(other)(shown(keyring))


@pytest.mark.parametrize("standing", ["member", "proxy", "server", "directory"])
def test_members_call_proxies_and_proxies_call_the_server_and_no_other_pair_connects(standing: TlsRole) -> None:
    """Beside one another in one row: each is called by the one before it. A directory stands apart, and has no TLS."""
    party, row = TlsIdentity(RINGS[standing]), ["directory", "", "member", "proxy", "server", ""]
    place = row.index(standing)
    for judge, met in ((party.callers, row[:place][-1:]), (party.hosts, row[place + 1 :][:1])):
        for other, keyring in RINGS.items():
            with contextlib.nullcontext() if other in met else pytest.raises(ForgedError):
                judge(shown(keyring))


def test_brokers_call_brokers_and_answer_brokers_and_members_and_no_other_role() -> None:
    party = TlsIdentity(BROKER)
    _, other = let_in(STATE, "berta", "broker")
    assert party.callers(shown(other)).name == party.hosts(shown(other)).name
    party.callers(shown(MEMBER))
    for keyring in (PROXY, SERVER, DIRECTORY):
        for judge in (party.callers, party.hosts):
            with pytest.raises(ForgedError, match="another role"):
                judge(shown(keyring))
    with pytest.raises(ForgedError, match="another role"):
        party.hosts(shown(MEMBER))


def test_members_may_only_call_servers_only_answer_proxies_both_and_directories_list_and_no_more() -> None:
    uses = {standing: read_leaf(shown(keyring)) for standing, keyring in RINGS.items()}
    assert {standing: (leaf.calls, leaf.answers, leaf.lists) for standing, leaf in uses.items()} == {
        "member": (True, False, False),
        "proxy": (True, True, False),
        "server": (False, True, False),
        "directory": (False, False, True),
        "broker": (True, True, True),
    }


def test_a_certificate_stands_for_the_epochs_of_the_membership_and_no_longer() -> None:
    visitor = TlsIdentity(PROXY).make_judge("member")(shown(MEMBER))
    for good in (at(NOW), at(LAST + 1) - 1):
        visitor.check(good)
    for bad in (at(NOW) - 1, at(LAST + 1)):
        with pytest.raises(StaleError):
            visitor.check(bad)


def test_a_new_grant_keeps_the_name_and_lasts_longer() -> None:
    asking = make_request("", "subscriber", HOUR_US, NOW + 1, EPOCHS, ENTROPY, MEMBER.membership.link, tls=True)
    _, reply = issuer.grant(STATE, "dora", asking.request, NOW + 1, EPOCHS, ENTROPY)
    renewed = complete_request(asking, reply, MEMBER)
    judge = TlsIdentity(PROXY).make_judge("member")
    assert judge(shown(renewed)).name == judge(shown(MEMBER)).name
    judge(shown(renewed)).check(at(LAST + 1))


def test_a_revoked_member_is_refused_from_the_epoch_of_the_bulletin_on() -> None:
    state = issuer.revoke(STATE, "dora", None, NOW + 2, ENTROPY)
    revoked = RevokedKeys(state.root, 100)
    visitor = TlsIdentity(PROXY, revoked).make_judge("member")(shown(MEMBER))
    visitor.check(at(NOW + 3))
    revoked.add(bulletin_of(state), NOW + 2)  # While the visitor is here.
    visitor.check(at(NOW + 2))
    with pytest.raises(ForgedError, match="revoked"):
        visitor.check(at(NOW + 3))


def test_a_peer_that_shows_our_own_certificate_is_refused() -> None:
    with pytest.raises(ForgedError, match="our own"):
        TlsIdentity(PROXY).make_judge("proxy")(shown(PROXY))


@given(st.binary(max_size=300))
def test_no_certificate_raises_anything_but_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(MalformedError):
        TlsIdentity(PROXY).make_judge("member", "proxy", "server")(data)


def test_a_sub_authoritys_members_are_let_in_until_the_root_ends_it() -> None:
    root, sub = issuer.delegate(STATE, "sport", NOW, EPOCHS, ENTROPY)
    sub, theirs = let_in(sub, "erin", "member")
    check_chain(theirs.membership.tls, STATE.root)
    assert len(theirs.membership.tls) == 3
    revoked = RevokedKeys(root.root, 100)
    visitor = TlsIdentity(PROXY, revoked).make_judge("member")(shown(theirs))
    visitor.check(at(NOW))
    revoked.add(bulletin_of(issuer.revoke_group(root, "sport", NOW, ENTROPY)), NOW)
    with pytest.raises(ForgedError, match="revoked"):
        visitor.check(at(NOW + 1))
    void = msgspec.structs.replace(PROXY, void={sub.key.public: NOW + 1})
    with pytest.raises(ForgedError, match="ended"):
        TlsIdentity(void).make_judge("member")(shown(theirs)).check(at(NOW + 1))


def test_a_sub_authority_can_shut_out_its_own_members_and_no_others() -> None:
    _, sub = issuer.delegate(STATE, "sport", NOW, EPOCHS, ENTROPY)
    sub, theirs = let_in(sub, "erin", "member")
    # Planted: the sub-authority claims that the root's member is one of its own.
    known = STATE.members["dora"]
    sub = msgspec.structs.replace(sub, members={**sub.members, "dora": known})
    sub = issuer.revoke(sub, "dora", None, NOW, ENTROPY)
    revoked = RevokedKeys(STATE.root, 100)
    revoked.add(bulletin_of(sub), NOW)
    revoked.add(bulletin_of(issuer.revoke(sub, "erin", None, NOW, ENTROPY)), NOW)
    judge = TlsIdentity(PROXY, revoked).make_judge("member")
    judge(shown(MEMBER)).check(at(NOW + 1))
    with pytest.raises(ForgedError, match="revoked"):
        judge(shown(theirs)).check(at(NOW + 1))


def test_a_host_is_let_in_with_a_tls_key_and_without_topics() -> None:
    topic = make_request(TOPIC, "subscriber", HOUR_US, NOW, EPOCHS, ENTROPY, tls=True)
    keyless = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, ENTROPY)
    for asking in (topic, keyless):
        with pytest.raises(AuthorityError, match="a proxy is let in"):
            issuer.grant(STATE, "new", asking.request, NOW, EPOCHS, ENTROPY, "proxy")


def test_a_member_that_asks_cannot_choose_its_role() -> None:
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, ENTROPY, tls=True)
    _, reply = issuer.grant(STATE, "new", asking.request, NOW, EPOCHS, ENTROPY)
    assert TlsIdentity(complete_request(asking, reply, None)).role == "member"


def test_files_of_earlier_versions_still_load_and_name_the_fields_they_lack() -> None:
    old = plain_without(MEMBER, "membership", "tls")
    keyring = decode_struct(old, Keyring, TamperedError)
    assert keyring.membership.link == MEMBER.membership.link
    with pytest.raises(AuthorityError, match="ask the authority for a new grant"):
        TlsIdentity(keyring)
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, ENTROPY)
    _, reply = issuer.grant(STATE, "new", asking.request, NOW, EPOCHS, ENTROPY)
    assert complete_request(asking, reply, None).membership.tls == ()
    _, sub = issuer.delegate(STATE, "sport", NOW, EPOCHS, ENTROPY)
    before = decode_struct(plain_without(sub, "tls"), Authority, TamperedError)
    assert let_in(before, "erin", "member")[1].membership.tls == ()


@pytest.mark.parametrize("whose", ["another member's", "another authority's", "none"])
def test_an_answer_with_certificates_that_are_not_ours_is_refused(whose: str) -> None:
    asking = make_request("", "subscriber", HOUR_US, NOW, EPOCHS, ENTROPY, tls=True)
    state, good = issuer.grant(STATE, "new", asking.request, NOW, EPOCHS, ENTROPY)
    ours = complete_request(asking, good, None).membership
    foreign = issuer.create(HOUR_US, ENTROPY)
    _, theirs = issuer.grant(foreign, "new", asking.request, NOW, EPOCHS, ENTROPY)
    planted = {
        "another member's": MEMBER.membership.tls,
        "another authority's": complete_request(asking, theirs, None).membership.tls,
        "none": (b"nothing", *ours.tls[1:]),
    }[whose]
    reply = Reply(state.root, state.epoch_us, state.network, CertificateChain(ours.certificate.leaf), None, planted)
    with pytest.raises(RemoteError):
        complete_request(asking, seal_reply(reply, asking.request.link, ENTROPY), None)


def test_the_key_comes_from_the_link_key_and_its_certificate_is_of_it() -> None:
    assert read_leaf(shown(MEMBER)).public == derive_tls_key(MEMBER.membership.link).public
    assert "PRIVATE" not in repr(TlsIdentity(MEMBER).key)


def plain_without(value: Keyring | Authority, *path: str) -> bytes:
    """As it was written before there was the field at the end of the path."""
    magic = MAGIC_OF[type(value).__name__] + bytes((VERSION,))
    fields = msgspec.msgpack.decode(encode_struct(value)[len(magic) :])
    holder = fields
    for name in path[:-1]:
        holder = holder[name]
    del holder[path[-1]]
    return magic + msgspec.msgpack.encode(fields)

"""A hostile sub-authority cannot undo revocations, appoint hosts or take names outside its group."""

from __future__ import annotations

import msgspec
import pytest

from support.authority_members import EPOCHS, HOUR_US, NOW, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.bulletin import VOID_MAX, BulletinWriter, VoidKey
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, sign_statement
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.tls_identity import TlsIdentity, issue_tls_certificates, role_of_keyring
from veilcast.crypto.certificate import EPOCH_MAX
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.x509 import certify_leaf, read_leaf
from veilcast.errors import AuthorityError, ForgedError

PEOPLE = make_authority_members()
ENTROPY = PEOPLE.entropy
LIMIT = 65_536
HOSTS: tuple[TlsRole, ...] = ("proxy", "server", "directory", "broker")
ROOT, CHESS = issuer.delegate(PEOPLE.authority, "chess", NOW, EPOCHS, ENTROPY)
ROOT, GO = issuer.delegate(ROOT, "go", NOW, EPOCHS, ENTROPY)
ROOT, MEMBER = issuer.grant_ready(ROOT, "dora", [], NOW, EPOCHS, ENTROPY, "member")


def flood(known: RevokedKeys, signer: Authority, bulletins: int, size: int = VOID_MAX) -> None:
    """Bulletins of made-up names that end later than all others."""
    for number in range(bulletins):
        names = [VoidKey((number << 32 | index).to_bytes(16, "big"), EPOCH_MAX) for index in range(size)]
        known.add(BulletinWriter(number + 1, NOW + 1, ENTROPY).sign(signer.key, names, signer.delegation), NOW)


def test_a_sub_authority_cannot_evict_the_void_keys_of_the_root() -> None:
    known = RevokedKeys(ROOT.root, LIMIT)
    known.add(bulletin_of(issuer.revoke(ROOT, "mallory", None, NOW, ENTROPY)), NOW)
    flood(known, CHESS, 8)
    assert len(known) == LIMIT + 1
    with pytest.raises(ForgedError, match="revoked"):
        known.check(PEOPLE.mallory.membership.certificate, NOW + 1)


def test_a_sub_authority_cannot_evict_the_void_keys_of_another_in_either_order() -> None:
    go = issuer.declare_label(GO, "go/news", "hardened", ENTROPY)
    go, ella = issuer.grant_ready(go, "ella", [("go/news", "publisher")], NOW, EPOCHS, ENTROPY)
    notice = bulletin_of(issuer.revoke(go, "ella", None, NOW, ENTROPY))
    for before, after in ((8, 0), (0, 8)):
        known = RevokedKeys(ROOT.root, 64)
        flood(known, CHESS, before, 100)
        known.add(notice, NOW)
        flood(known, CHESS, after, 100)
        assert len(known) == 64
        with pytest.raises(ForgedError, match="revoked"):
            known.check(ella.membership.certificate, NOW + 1)


def test_many_sub_authorities_share_the_places_that_one_would_have_alone() -> None:
    root, known = ROOT, RevokedKeys(ROOT.root, 40)
    for number in range(5):
        root, child = issuer.delegate(root, f"group{number}", NOW, EPOCHS, ENTROPY)
        flood(known, child, 1, 100)
    assert len(known) == 40
    known.add(BulletinWriter(9, NOW + 1, ENTROPY).sign(ROOT.key, [], None), NOW + EPOCHS)
    assert len(known) == 0, "names that a sub-authority voided are forgotten when its delegation ends"


def hostile_host(standing: TlsRole, sub: Authority = CHESS) -> Keyring:
    """A keyring that a sub-authority has made with code of its own, for a role that is not its to give."""
    _, keyring = issuer.grant_ready(sub, "evil", [], NOW, EPOCHS, ENTROPY, "member")
    leaf = read_leaf(keyring.membership.tls[0])
    chain = issue_tls_certificates(
        sub.key, sub.tls, keyring.membership.certificate.leaf, leaf.public, standing, HOUR_US
    )
    return msgspec.structs.replace(keyring, membership=msgspec.structs.replace(keyring.membership, tls=chain))


@pytest.mark.parametrize("standing", HOSTS)
def test_members_take_no_host_that_a_sub_authority_appoints(standing: TlsRole) -> None:
    evil = hostile_host(standing)
    with pytest.raises(ForgedError, match="only the root"):
        TlsIdentity(MEMBER).make_judge(standing)(evil.membership.tls[0])
    said = sign_statement(evil, b"a list", purpose=b"test")
    with pytest.raises(ForgedError, match="only the root"):
        StatementReader(MEMBER).verify_author(b"a list", said, standing, NOW * HOUR_US, purpose=b"test")
    with pytest.raises(ForgedError, match="only the root"):
        TlsIdentity(evil)
    with pytest.raises(ForgedError, match="only the root"):
        role_of_keyring(evil)
    with pytest.raises(AuthorityError, match="the root appoints"):
        issuer.grant_ready(CHESS, "evil", [], NOW, EPOCHS, ENTROPY, standing)
    _, good = issuer.grant_ready(ROOT, "good", [], NOW, EPOCHS, ENTROPY, standing)
    TlsIdentity(MEMBER).make_judge(standing)(good.membership.tls[0]).check(NOW * HOUR_US)


def test_a_sub_authority_cannot_give_its_member_the_name_of_another() -> None:
    _, proxy = issuer.grant_ready(ROOT, "paul", [], NOW, EPOCHS, ENTROPY, "proxy")
    _, theirs = issuer.grant_ready(CHESS, "evil", [], NOW, EPOCHS, ENTROPY, "member")
    own = read_leaf(theirs.membership.tls[0])
    victim = fingerprint(MEMBER.membership.certificate.leaf.subject)
    forged = certify_leaf(CHESS.key, msgspec.structs.replace(own, name=victim))
    judge = TlsIdentity(proxy).callers
    assert judge(forged).name != judge(MEMBER.membership.tls[0]).name
    assert judge(forged).name != judge(theirs.membership.tls[0]).name

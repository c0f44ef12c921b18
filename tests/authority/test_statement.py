from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.authority_members import EPOCHS, HOUR_US, NOW, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, StatementSignature, sign_statement
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.x509 import FOREVER_S, Leaf, certify_leaf
from veilcast.errors import AuthorityError, ForgedError, RemoteError, StaleError
from veilcast.wire.geometry import CERTIFICATE_MAX

PEOPLE = make_authority_members()
ENTROPY = PEOPLE.entropy
PURPOSE = b"test/statement"
AT = NOW * HOUR_US
SUPER, SUB = issuer.delegate(PEOPLE.authority, "sub", NOW, EPOCHS, ENTROPY)
STATE, MEMBER = issuer.grant_ready(SUPER, "dora", [], NOW, EPOCHS, ENTROPY, "member")
STATE, DIRECTORY = issuer.grant_ready(STATE, "dick", [], NOW, EPOCHS, ENTROPY, "directory")
STATE, BROKER = issuer.grant_ready(STATE, "bruno", [], NOW, EPOCHS, ENTROPY, "broker")
_, THEIRS = issuer.grant_ready(SUB, "ella", [], NOW, EPOCHS, ENTROPY, "member")
BODY = b"I am here"
WORD = sign_statement(MEMBER, BODY, purpose=PURPOSE)


def name_of(keyring: Keyring) -> bytes:
    return fingerprint(keyring.membership.certificate.leaf.subject)


@pytest.mark.parametrize(
    ("keyring", "standing"), [(MEMBER, "member"), (DIRECTORY, "directory"), (THEIRS, "member")], ids=str
)
def test_a_statement_proves_its_author(keyring: Keyring, standing: TlsRole) -> None:
    said = sign_statement(keyring, b"hello", purpose=PURPOSE)
    assert StatementReader(MEMBER).verify_author(b"hello", said, standing, AT, purpose=PURPOSE).name == name_of(keyring)


def test_a_statement_counts_only_in_its_role_its_time_and_for_its_purpose() -> None:
    reader = StatementReader(DIRECTORY)
    others: tuple[TlsRole, ...] = ("directory", "server", "proxy")
    for standing in others:
        with pytest.raises(ForgedError, match="another role"):
            reader.verify_author(BODY, WORD, standing, AT, purpose=PURPOSE)
    with pytest.raises(StaleError):
        reader.verify_author(BODY, WORD, "member", AT + EPOCHS * HOUR_US, purpose=PURPOSE)
    with pytest.raises(ForgedError):
        reader.verify_author(BODY, WORD, "member", AT, purpose=b"another")


def test_a_broker_whose_certificate_has_every_use_still_signs_no_list() -> None:
    said = sign_statement(BROKER, BODY, purpose=PURPOSE)
    with pytest.raises(ForgedError, match="another role"):
        StatementReader(MEMBER).verify_author(BODY, said, "directory", AT, purpose=PURPOSE)


@given(st.sampled_from(["body", "certificate", "signature"]), st.integers(0, 10_000), st.integers(1, 255))
def test_not_a_bit_of_a_statement_can_be_changed(what: str, place: int, flip: int) -> None:
    parts = {"body": BODY, "certificate": WORD.certificates[0], "signature": WORD.signature}
    changed = bytearray(parts[what])
    changed[place % len(changed)] ^= flip
    parts[what] = bytes(changed)
    said = StatementSignature((parts["certificate"],), parts["signature"])
    with pytest.raises(RemoteError):
        StatementReader(DIRECTORY).verify_author(parts["body"], said, "member", AT, purpose=PURPOSE)


def test_the_statements_of_a_revoked_member_are_refused() -> None:
    ended = issuer.revoke(STATE, "dora", None, NOW, ENTROPY)
    revoked = RevokedKeys(DIRECTORY.root, 10)
    revoked.add(bulletin_of(ended), NOW)
    reader = StatementReader(DIRECTORY, revoked)
    reader.verify_author(BODY, WORD, "member", AT, purpose=PURPOSE)
    with pytest.raises(ForgedError, match="revoked"):
        reader.verify_author(BODY, WORD, "member", AT + HOUR_US, purpose=PURPOSE)


def test_certificates_of_a_sub_authority_end_with_it() -> None:
    void = msgspec.structs.replace(DIRECTORY, void={SUB.key.public: NOW})
    with pytest.raises(ForgedError, match="sub-authority"):
        StatementReader(void).verify_author(
            BODY, sign_statement(THEIRS, BODY, purpose=PURPOSE), "member", AT, purpose=PURPOSE
        )


def test_statements_of_another_authoritys_members_are_refused() -> None:
    _, stranger = issuer.grant_ready(
        make_authority_members(seed=8).authority, "eve", [], NOW, EPOCHS, ENTROPY, "member"
    )
    with pytest.raises(ForgedError):
        StatementReader(DIRECTORY).verify_author(
            BODY, sign_statement(stranger, BODY, purpose=PURPOSE), "member", AT, purpose=PURPOSE
        )


def test_certificates_fit_the_message_that_carries_them() -> None:
    ends = Leaf(b"\xff" * 16, b"\xff" * 32, SUB.key.public, True, True, FOREVER_S, FOREVER_S, True)
    largest = max(len(certificate) for certificate in (certify_leaf(SUB.key, ends), *THEIRS.membership.tls))
    assert largest <= CERTIFICATE_MAX


def test_a_keyring_without_a_certificate_for_it_can_neither_state_nor_read() -> None:
    for act in (lambda: sign_statement(PEOPLE.alice, b"x", purpose=PURPOSE), lambda: StatementReader(PEOPLE.alice)):
        with pytest.raises(AuthorityError):
            act()

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from support.any_certificate import MEMBER, certificate, common_name
from veilcast.crypto.derive import FINGERPRINT, fingerprint
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.x509 import (
    FOREVER_S,
    Leaf,
    as_pem,
    certify_delegate,
    certify_leaf,
    certify_root,
    check_chain,
    key_as_pem,
    read_leaf,
)
from veilcast.errors import ForgedError, MalformedError

ROOT, SUB, HOLDER = (SigningKey(Secret(bytes([number]) * 32)) for number in (1, 2, 3))
LEAF = Leaf(bytes(FINGERPRINT), HOLDER.public, ROOT.public, True, False, 1_000, 2_000)

seconds = st.integers(0, FOREVER_S)
leaves = st.builds(
    lambda name, uses, times: Leaf(name, HOLDER.public, ROOT.public, uses[0], uses[1], min(times), max(times), uses[2]),
    st.binary(min_size=FINGERPRINT, max_size=FINGERPRINT),
    st.sampled_from([(True, False, False), (False, True, False), (True, True, False), (False, False, True)]),
    st.tuples(seconds, seconds),
)


@given(leaves)
def test_a_certificate_decodes_to_the_content_it_was_made_with(leaf: Leaf) -> None:
    data = certify_leaf(ROOT, leaf)
    assert read_leaf(data) == leaf
    assert certify_leaf(ROOT, leaf) == data


def test_certificates_that_say_something_else_have_other_serial_numbers() -> None:
    others = [
        LEAF,
        msgspec.structs.replace(LEAF, answers=True),
        msgspec.structs.replace(LEAF, lists=True),
        msgspec.structs.replace(LEAF, last_s=2_001),
        msgspec.structs.replace(LEAF, name=b"x" * FINGERPRINT),
    ]
    serials = {x509.load_der_x509_certificate(certify_leaf(ROOT, leaf)).serial_number for leaf in others}
    assert len(serials) == len(others)


def test_a_certificate_beyond_the_last_date_ends_with_it() -> None:
    assert read_leaf(certify_leaf(ROOT, msgspec.structs.replace(LEAF, last_s=1 << 60))).last_s == FOREVER_S
    root = x509.load_der_x509_certificate(certify_root(ROOT))
    assert root.not_valid_after_utc == datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def test_a_certificate_names_no_person_and_no_product() -> None:
    certificate = x509.load_der_x509_certificate(certify_leaf(ROOT, LEAF))
    assert certificate.subject.rfc4514_string() == f"CN={LEAF.name.hex()}"
    assert certificate.issuer.rfc4514_string() == f"CN={fingerprint(ROOT.public).hex()}"
    assert b"veil" not in certify_leaf(ROOT, LEAF).lower() + certify_root(ROOT).lower()


def test_a_chain_holds_if_every_link_does() -> None:
    root, sub = certify_root(ROOT), certify_delegate(ROOT, SUB.public, 0, 3_000)
    of_sub = certify_leaf(SUB, msgspec.structs.replace(LEAF, issuer=SUB.public))
    check_chain((certify_leaf(ROOT, LEAF), root), ROOT.public)
    check_chain((of_sub, sub, root), ROOT.public)
    for broken in ((of_sub, root), (certify_leaf(ROOT, LEAF), sub, root), (of_sub, sub), (), (b"x", root)):
        with pytest.raises(ForgedError):
            check_chain(broken, ROOT.public)
    with pytest.raises(ForgedError):
        check_chain((certify_leaf(SUB, LEAF), certify_root(SUB)), ROOT.public)


CA = {"ca": True, "path_length": 0, "signs": True}
NOT_OURS: dict[str, dict[str, Any]] = {
    "a leaf that is an authority": CA,
    "a leaf with the authority's flag alone": {"ca": True},
    "a leaf with the key usage of an authority": {"signs": True},
    "a critical extension that nobody knows": {"extra": [(x509.OCSPNoCheck(), True)]},
    "an extension that nobody needs": {"extra": [(x509.SubjectAlternativeName([x509.DNSName("a.example")]), False)]},
    "another serial number": {"serial": 8},
    "another issuer's key identifier": {"key_id": SUB.public},
    "a short key identifier": {"key_id": b"short"},
    "a date before all epochs": {"first": datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)},
}


@pytest.mark.parametrize("changed", NOT_OURS.values(), ids=NOT_OURS)
def test_a_certificate_that_the_issuer_would_not_write_is_refused_though_its_signature_holds(
    changed: dict[str, Any],
) -> None:
    """Each of these is signed by the root itself; X.509 leaves the choice, and this format does not."""
    named, ours = common_name(fingerprint(ROOT.public)), certify_leaf(ROOT, LEAF)
    same = {
        "serial": x509.load_der_x509_certificate(ours).serial_number,
        "first": datetime.datetime.fromtimestamp(LEAF.first_s, datetime.UTC),
        "last": datetime.datetime.fromtimestamp(LEAF.last_s, datetime.UTC),
    }
    assert certificate(ROOT, named, LEAF.name, HOLDER.public, MEMBER, **same) == ours
    data = certificate(ROOT, named, LEAF.name, HOLDER.public, MEMBER, **same | changed)
    with pytest.raises(MalformedError):
        read_leaf(data)
    with pytest.raises(ForgedError):
        check_chain((data, certify_root(ROOT)), ROOT.public)


def test_an_issuer_is_a_delegate_of_the_root_and_nothing_else() -> None:
    """In the issuer's place: a leaf, a certificate of its own making, a root, a delegate's delegate, a longer chain."""
    root, sub = certify_root(ROOT), certify_delegate(ROOT, SUB.public, 0, 3_000)
    holder = certify_leaf(ROOT, LEAF)
    named = common_name(LEAF.name)
    of_holder = certificate(HOLDER, named, bytes(FINGERPRINT), HOLDER.public, MEMBER)
    as_ours = certify_leaf(HOLDER, LEAF)
    self_made = certificate(HOLDER, named, LEAF.name, HOLDER.public, MEMBER, **CA)
    below_sub = certify_delegate(SUB, HOLDER.public, 0, 3_000)
    for chain in (
        (of_holder, holder, root),
        (as_ours, holder, root),
        (as_ours, self_made, root),
        (as_ours, below_sub, root),
        (as_ours, below_sub, sub, root),
        (as_ours, holder, sub, root),
        (as_ours, certify_root(HOLDER), root),
        (as_ours, root, root),
        (as_ours, certify_root(HOLDER)),
        (sub, root),
        (root, root),
        (root,),
    ):
        with pytest.raises(ForgedError):
            check_chain(chain, ROOT.public)


def test_a_path_is_valid_while_every_certificate_of_it_is() -> None:
    sub = certify_delegate(ROOT, SUB.public, 1_200, 1_500)
    of_sub = certify_leaf(SUB, msgspec.structs.replace(LEAF, issuer=SUB.public))
    path = check_chain((of_sub, sub, certify_root(ROOT)), ROOT.public)
    valid = [second for second in (999, 1_000, 1_199, 1_200, 1_500, 1_501, 2_001) if path.is_valid_at(second)]
    assert valid == [1_200, 1_500]
    straight = check_chain((certify_leaf(ROOT, LEAF), certify_root(ROOT)), ROOT.public)
    assert [second for second in (999, 1_000, 2_000, 2_001) if straight.is_valid_at(second)] == [1_000, 2_000]


def crafted() -> dict[str, bytes]:
    """Certificates that the library refuses in different ways, some with exceptions that are no `ValueError`."""
    data = certify_leaf(ROOT, LEAF)
    ed25519, twice = bytes.fromhex("06032b6570"), bytes.fromhex("0603551d13")
    first = data.index(ed25519)
    key = data.index(ed25519, first + 1)
    time = data.index(b"700101")
    return {
        "version 18": data.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x12", 1),
        "an unknown signature algorithm": data.replace(ed25519, bytes.fromhex("06032b657f")),
        "a key of another kind": data[:key] + bytes.fromhex("06032b6571") + data[key + 5 :],
        "an unknown kind of key": data[:key] + bytes.fromhex("06032b657f") + data[key + 5 :],
        "an extension twice": data.replace(bytes.fromhex("0603551d0f"), twice),
        "a time that is none": data[:time] + b"709901" + data[time + 6 :],
        "a time before 1970": data[:time] + b"500101" + data[time + 6 :],
        "something behind it": data + b"\0",
        "something missing": data[:-1],
        "deep nesting": b"\x30\x80" * 5_000,
        "nothing": b"",
    }


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.parametrize("data", crafted().values(), ids=crafted())
def test_every_error_of_the_library_on_foreign_bytes_is_malformed(data: bytes) -> None:
    assert data != certify_leaf(ROOT, LEAF)
    with pytest.raises(MalformedError):
        read_leaf(data)
    for chain in ((data, certify_root(ROOT)), (certify_leaf(ROOT, LEAF), data, certify_root(ROOT))):
        with pytest.raises(ForgedError):
            check_chain(chain, ROOT.public)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(
    st.sampled_from([certify_leaf(ROOT, LEAF), certify_delegate(ROOT, SUB.public, 0, 3_000), certify_root(ROOT)]),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=4),
)
def test_mutated_certificates_are_malformed_and_nothing_worse(
    data: bytes, mutations: list[tuple[int, bytes, int]]
) -> None:
    for place, inserted, removed in mutations:
        data = data[:place] + inserted + data[place + removed :]
    with suppress(MalformedError):
        assert read_leaf(data) == LEAF  # What is left of it is the same but for the signature.
    for chain in ((data, certify_root(ROOT)), (certify_leaf(ROOT, LEAF), data, certify_root(ROOT))):
        with suppress(ForgedError):
            check_chain(chain, ROOT.public)
            assert data in (certify_leaf(ROOT, LEAF), certify_delegate(ROOT, SUB.public, 0, 3_000))


@given(st.binary(max_size=64))
def test_bytes_that_are_no_certificate_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read_leaf(data)


def test_an_issuers_certificate_is_not_accepted_as_a_members() -> None:
    with pytest.raises(MalformedError):
        read_leaf(certify_root(ROOT))


def test_pem_has_all_in_order_and_the_key_does_not_print() -> None:
    pem = as_pem(certify_leaf(ROOT, LEAF), certify_root(ROOT))
    serials = [certificate.serial_number for certificate in x509.load_pem_x509_certificates(pem)]
    assert serials == [
        x509.load_der_x509_certificate(data).serial_number for data in (certify_leaf(ROOT, LEAF), certify_root(ROOT))
    ]
    key = key_as_pem(HOLDER)
    assert key.reveal().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(key)

from __future__ import annotations

import datetime

import msgspec
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

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
def test_a_certificate_says_what_it_was_made_to_say(leaf: Leaf) -> None:
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


def test_what_would_end_after_all_time_ends_with_it() -> None:
    assert read_leaf(certify_leaf(ROOT, msgspec.structs.replace(LEAF, last_s=1 << 60))).last_s == FOREVER_S
    root = x509.load_der_x509_certificate(certify_root(ROOT))
    assert root.not_valid_after_utc == datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


def test_nothing_in_a_certificate_names_anybody_or_anything() -> None:
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
    with pytest.raises(ForgedError, match="another authority"):
        check_chain((certify_leaf(SUB, LEAF), certify_root(SUB)), ROOT.public)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@given(st.binary(max_size=64) | st.tuples(st.integers(0, 250), st.integers(0, 255)))
def test_what_is_no_certificate_of_ours_is_malformed_and_nothing_worse(damage: bytes | tuple[int, int]) -> None:
    data = certify_leaf(ROOT, LEAF)
    if isinstance(damage, bytes):
        data = damage
    else:
        place, value = damage
        data = data[:place] + bytes((value,)) + data[place + 1 :]
    try:
        read_leaf(data)
    except MalformedError:
        pass
    else:
        assert not isinstance(damage, bytes)


def test_an_issuers_certificate_is_nobodys() -> None:
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

from __future__ import annotations

import msgspec
import pytest

from veilcast.crypto.certificate import EVERY_TOPIC, Certificate, CertificateChain, CertificateKind, certify
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy

TOKEN, LINEAGE = b"t" * 32, b"l" * 16


def test_a_certificate_holds_in_its_epochs_for_its_kind_and_issuer_only(entropy: Entropy) -> None:
    root, subject = SigningKey.generate(entropy), SigningKey.generate(entropy)
    certificate = certify(root, CertificateKind.PUBLISHER, subject.public, TOKEN, 5, 7)
    for epoch in (5, 6, 7):
        certificate.verify(root.public, CertificateKind.PUBLISHER, epoch)
    for epoch in (4, 8):
        with pytest.raises(StaleError):
            certificate.verify(root.public, CertificateKind.PUBLISHER, epoch)
    with pytest.raises(ForgedError):
        certificate.verify(root.public, CertificateKind.MEMBER, 6)
    with pytest.raises(ForgedError):
        certificate.verify(subject.public, CertificateKind.PUBLISHER, 6)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": b"s" * 32},
        {"scope": b"u" * 32},
        {"first": 0},
        {"last": 99},
        {"lineage": bytes(16)},
        {"cover": 0},
        {"cover": 781},
        {"signature": bytes(64)},
    ],
)
def test_no_field_of_a_certificate_can_be_changed(change: dict[str, object], entropy: Entropy) -> None:
    root = SigningKey.generate(entropy)
    certificate = certify(
        root, CertificateKind.PUBLISHER, SigningKey.generate(entropy).public, TOKEN, 5, 7, LINEAGE, 780
    )
    certificate.verify(root.public, CertificateKind.PUBLISHER, 6)
    forged = msgspec.structs.replace(certificate, **change)
    with pytest.raises(ForgedError):
        forged.verify(root.public, forged.kind, 6)


def test_the_kind_of_a_certificate_cannot_be_changed(entropy: Entropy) -> None:
    root = SigningKey.generate(entropy)
    certificate = certify(root, CertificateKind.PUBLISHER, SigningKey.generate(entropy).public, TOKEN, 5, 7)
    for kind in (CertificateKind.MEMBER, CertificateKind.DELEGATE):
        with pytest.raises(ForgedError):
            msgspec.structs.replace(certificate, kind=kind).verify(root.public, kind, 6)


def test_a_delegate_may_certify_but_not_delegate_further(entropy: Entropy) -> None:
    root, delegate, publisher = (SigningKey.generate(entropy) for _ in range(3))
    group = b"g" * 32
    delegation = certify(root, CertificateKind.DELEGATE, delegate.public, group, 0, 10)
    leaf = certify(delegate, CertificateKind.PUBLISHER, publisher.public, TOKEN, 0, 10)
    good = CertificateChain(leaf, delegation)
    good.verify(root.public, CertificateKind.PUBLISHER, 3)
    assert good.group == group
    assert CertificateChain(leaf).group == EVERY_TOPIC
    with pytest.raises(ForgedError):
        CertificateChain(leaf).verify(root.public, CertificateKind.PUBLISHER, 3)
    # A delegate's own "delegation" to a friend is a certificate that the root did not sign.
    second = certify(delegate, CertificateKind.DELEGATE, publisher.public, group, 0, 10)
    deeper = certify(publisher, CertificateKind.PUBLISHER, publisher.public, TOKEN, 0, 10)
    with pytest.raises(ForgedError):
        CertificateChain(deeper, second).verify(root.public, CertificateKind.PUBLISHER, 3)


def test_an_ended_delegation_ends_everything_it_signed(entropy: Entropy) -> None:
    root, delegate = SigningKey.generate(entropy), SigningKey.generate(entropy)
    delegation = certify(root, CertificateKind.DELEGATE, delegate.public, b"g" * 32, 0, 10)
    leaf = certify(delegate, CertificateKind.MEMBER, delegate.public, bytes(32), 0, 99)
    with pytest.raises(StaleError):
        CertificateChain(leaf, delegation).verify(root.public, CertificateKind.MEMBER, 11)


def test_a_member_certificate_cannot_be_shown_as_a_delegation(entropy: Entropy) -> None:
    root, member = SigningKey.generate(entropy), SigningKey.generate(entropy)
    membership = certify(root, CertificateKind.MEMBER, member.public, bytes(32), 0, 10)
    leaf = certify(member, CertificateKind.PUBLISHER, member.public, TOKEN, 0, 10)
    with pytest.raises(RemoteError):
        CertificateChain(leaf, membership).verify(root.public, CertificateKind.PUBLISHER, 1)


def test_an_illegal_certificate_cannot_be_built() -> None:
    for fields in (
        (CertificateKind.MEMBER, b"short", bytes(32), 0, 1, bytes(16), 0, bytes(64)),
        (CertificateKind.MEMBER, bytes(32), bytes(32), 2, 1, bytes(16), 0, bytes(64)),
        (CertificateKind.MEMBER, bytes(32), bytes(32), 0, 2**32, bytes(16), 0, bytes(64)),
        (CertificateKind.MEMBER, bytes(32), bytes(32), 0, 1, bytes(16), 0, b""),
        (CertificateKind.MEMBER, bytes(32), bytes(32), 0, 1, LINEAGE, 0, bytes(64)),
        (CertificateKind.DELEGATE, bytes(32), bytes(32), 0, 1, bytes(16), 1, bytes(64)),
        (CertificateKind.PUBLISHER, bytes(32), bytes(32), 0, 1, b"short", 0, bytes(64)),
        (CertificateKind.PUBLISHER, bytes(32), bytes(32), 0, 1, LINEAGE, 1001, bytes(64)),
        (CertificateKind.PUBLISHER, bytes(32), bytes(32), 0, 1, LINEAGE, -1, bytes(64)),
    ):
        with pytest.raises(MalformedError):
            Certificate(*fields)

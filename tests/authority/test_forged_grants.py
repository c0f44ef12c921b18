"""A member without a publisher's grant forges publications and certificates with everything that it may hold.

The adversary is a coalition of members: bob reads both topics, dora publishes on the other topic, and both have
memberships with link keys, TLS keys and certificates. They pool all keys and every certificate that travelled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import msgspec
import pytest

from support.authority_members import EPOCHS, NOW, OTHER, TOPIC, AuthorityMembers, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.role import derive_broker_key, derive_tls_key
from veilcast.authority.topic_record import Profile
from veilcast.core.publication import (
    NumberedPublication,
    check_certified_notify,
    check_notify,
    make_certified_notify,
    make_notify,
    open_notify,
)
from veilcast.crypto.certificate import Certificate, CertificateChain, CertificateKind, certify
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, RemoteError
from veilcast.machine import Publication
from veilcast.relay import body_encryption

PROFILES: tuple[Profile, ...] = ("hardened", "paper")
CONTENT = NumberedPublication(b"streamed", 1, Publication((("topic", TOPIC),), b"forged"))


class Coalition:
    """The keys that bob and dora hold together, and the certificates that they have seen in transit."""

    def __init__(self, profile: Profile) -> None:
        people = make_authority_members(profile)
        entropy = people.entropy
        _, self.dora = issuer.grant_ready(people.authority, "dora", [(OTHER, "publisher")], NOW, EPOCHS, entropy)
        _, child = issuer.delegate(people.authority, "chess", NOW, EPOCHS, entropy)
        assert child.delegation is not None
        self.people, self.bob, self.delegation = people, people.bob, child.delegation
        self.root, self.token = people.bob.root, people.bob.keys_at(NOW).topic(TOPIC).token
        theirs = self.dora.keys_at(NOW).topic(OTHER)
        assert theirs.signing is not None
        self.signers = [
            theirs.signing,
            child.key,
            *(
                derive(ring.membership.link)
                for ring in (self.bob, self.dora)
                for derive in (derive_tls_key, derive_broker_key)
            ),
            SigningKey.generate(random.Random(1).randbytes),
        ]
        self.seen: list[Certificate] = [
            certificate_of(theirs),
            certificate_of(people.alice.keys_at(NOW).topic(TOPIC)),
            certificate_of(people.alice.keys_at(NOW + 1).topic(TOPIC)),
            self.bob.membership.certificate.leaf,
            self.dora.membership.certificate.leaf,
            self.delegation,
        ]

    def chains(self, kind: CertificateKind, scope: bytes, subject: bytes) -> list[CertificateChain]:
        """Every certificate for `subject` that a key of theirs signs, behind every issuer that they can show."""
        return [
            CertificateChain(certify(signer, kind, subject, scope, NOW, NOW + EPOCHS - 1, lineage, cover), delegation)
            for signer in self.signers
            for delegation in (None, *self.seen)
            for lineage, cover in (
                ((b"l" * 16, 100), (bytes(16), 0)) if kind is CertificateKind.PUBLISHER else ((bytes(16), 0),)
            )
        ]


def certificate_of(keys: TopicKeys) -> Certificate:
    assert keys.certificate is not None
    return keys.certificate.leaf


def forgeries(coalition: Coalition) -> list[TopicKeys]:
    """Publisher's keys for the topic: shown certificates with their own keys, and certificates of their making."""
    reader = coalition.bob.keys_at(NOW).topic(TOPIC)
    borrowed = [
        (signer, CertificateChain(leaf, delegation))
        for signer, leaf, delegation in product(coalition.signers, coalition.seen, (None, coalition.delegation))
    ]
    made = [
        (signer, chain)
        for signer in coalition.signers
        for chain in coalition.chains(CertificateKind.PUBLISHER, coalition.token, signer.public)
    ]
    return [
        msgspec.structs.replace(reader, role="publisher", signing=signer, certificate=chain)
        for signer, chain in borrowed + made
    ]


def publish_by_mesh_or_tree(keys: TopicKeys, people: AuthorityMembers) -> None:
    """A forwarder and a reader check a publication that shows its certificate."""
    notify, reader = make_certified_notify(keys, CONTENT, people.entropy), people.carol.keys_at(NOW).topic(TOPIC)
    chain = check_certified_notify(notify, people.carol.root, NOW, NOW + 1)
    reader.check_publisher(chain, people.carol.root, NOW)
    open_notify(reader, notify)


def publish_after_an_advertisement(keys: TopicKeys, people: AuthorityMembers) -> None:
    """An advertisement shows the certificate first, as in the paper's mesh."""
    reader, chain = people.carol.keys_at(NOW).topic(TOPIC), keys.certificate
    assert chain is not None
    reader.check_publisher(chain, people.carol.root, NOW)
    notify = make_notify(keys, CONTENT, people.entropy)
    check_notify(notify, [chain.leaf.subject])
    open_notify(reader, notify)


def publish_by_relay(keys: TopicKeys, people: AuthorityMembers) -> None:
    reader = people.carol.keys_at(NOW).topic(TOPIC)
    body_encryption.open_note(reader, body_encryption.seal_note(keys, CONTENT, people.entropy), people.carol.root, NOW)


@pytest.mark.parametrize(
    ("profile", "publish"),
    [
        ("hardened", publish_by_mesh_or_tree),
        ("hardened", publish_after_an_advertisement),
        ("hardened", publish_by_relay),
        ("paper", publish_after_an_advertisement),
    ],
)
def test_members_without_the_grant_cannot_publish_with_all_keys_and_certificates_that_they_pool(
    profile: Profile, publish: Callable[[TopicKeys, AuthorityMembers], None]
) -> None:
    coalition = Coalition(profile)
    publish(coalition.people.alice.keys_at(NOW).topic(TOPIC), coalition.people)
    attempts = forgeries(coalition)
    assert len(attempts) > 500
    for forged in attempts:
        with pytest.raises(RemoteError):
            publish(forged, coalition.people)


@pytest.mark.parametrize("kind", CertificateKind)
def test_no_certificate_of_a_member_or_a_publisher_serves_as_an_issuer(kind: CertificateKind) -> None:
    """A delegate of another group certifies members by its right; nobody below the root makes delegates."""
    coalition = Coalition("hardened")
    subject = SigningKey.generate(random.Random(2).randbytes).public
    scope = coalition.token if kind is CertificateKind.PUBLISHER else bytes(32)
    for chain in coalition.chains(kind, scope, subject):
        rightful = chain.delegation == coalition.delegation and signed_by(chain.leaf, coalition.delegation.subject)
        if rightful and kind is not CertificateKind.DELEGATE:
            chain.verify(coalition.root, kind, NOW)
            continue
        with pytest.raises(RemoteError):
            chain.verify(coalition.root, kind, NOW)


def signed_by(leaf: Certificate, issuer_key: bytes) -> bool:
    try:
        leaf.verify(issuer_key, leaf.kind, NOW)
    except ForgedError:
        return False
    return True


@pytest.mark.parametrize("profile", PROFILES)
def test_no_keys_of_other_topics_and_epochs_open_a_publication(profile: Profile) -> None:
    """Dora has no grant for the topic; bob's grant, in hardened, has one key for each epoch."""
    coalition = Coalition(profile)
    people = coalition.people
    notify = make_certified_notify(people.alice.keys_at(NOW).topic(TOPIC), CONTENT, people.entropy)
    assert open_notify(people.bob.keys_at(NOW).topic(TOPIC), notify) == CONTENT
    others = [coalition.bob.keys_at(NOW + later).topic(OTHER) for later in range(EPOCHS)]
    others += [coalition.dora.keys_at(NOW + later).topic(OTHER) for later in range(EPOCHS)]
    if profile == "hardened":
        others += [coalition.bob.keys_at(NOW + later).topic(TOPIC) for later in range(1, EPOCHS)]
    for keys in others:
        for token in (keys.token, notify.token):
            with pytest.raises(ForgedError):
                open_notify(msgspec.structs.replace(keys, token=token), notify)

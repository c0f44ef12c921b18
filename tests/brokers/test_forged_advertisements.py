"""Members without a publisher's grant forge advertisements with all certificates that they hold or see."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.broker_keyrings import EPOCH, OTHER, TOPIC, keyring, keys_of
from support.router_network import RouterNetwork, advertisement
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.role import derive_broker_key, derive_tls_key
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.crypto.certificate import CertificateChain, CertificateKind, certify
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, RemoteError


def forgeries() -> list[TopicKeys]:
    """A subscriber of the topic with a publisher of another: their keys, behind every issuer that they can show."""
    reader, other, honest = (
        keys_of(1, "hardened", "subscriber"),
        keys_of(3, "hardened", "publisher", OTHER),
        keys_of(0, "hardened"),
    )
    member = keyring(1, "hardened", "subscriber", (TOPIC,)).membership
    assert other.signing is not None
    assert other.certificate is not None
    assert honest.certificate is not None
    signers = [
        derive_tls_key(member.link),
        derive_broker_key(member.link),
        other.signing,
        SigningKey.generate(Random(1).randbytes),
    ]
    issuers = [None, member.certificate.leaf, other.certificate.leaf, honest.certificate.leaf]
    made = []
    for signer in signers:
        shown = [CertificateChain(leaf, behind) for leaf in issuers if leaf is not None for behind in issuers]
        leaves = [
            certify(
                key,
                CertificateKind.PUBLISHER,
                signer.public,
                reader.token,
                EPOCH,
                EPOCH,
                honest.certificate.leaf.lineage,
                0,
            )
            for key in signers
        ]
        shown += [CertificateChain(leaf, behind) for leaf in leaves for behind in issuers]
        made += [msgspec.structs.replace(reader, signing=signer, certificate=chain) for chain in shown]
    return made


def test_no_member_without_the_grant_advertises_with_foreign_or_self_made_certificates() -> None:
    nodes = RouterNetwork("hardened")
    words = predicate_codec("hardened").encode_advertisement(keys_of(0, "hardened"))
    attempts = forgeries()
    assert len(attempts) > 100
    for number, keys in enumerate(attempts):
        with pytest.raises(RemoteError):
            nodes.client("B2", "L", advertisement(keys, "B2", number, words=words))
    nodes.settle()
    assert not any(router.sizes()["claims"] for router in nodes.routers.values())
    nodes.client("B1", "P1", advertisement(keys_of(0, "hardened"), "B1", 1, words=words))


def test_a_claim_with_a_foreign_certificate_needs_the_certified_key() -> None:
    """The honest publisher's own advertisement, which all see, with another edge or another expiry."""
    nodes, honest = RouterNetwork("hardened"), keys_of(0, "hardened")
    seen = advertisement(honest, "B1", 1)
    for changed in (
        msgspec.structs.replace(seen, edge=advertisement(honest, "B2", 2).edge),
        msgspec.structs.replace(seen, until_us=seen.until_us + 1),
        msgspec.structs.replace(seen, holder=bytes(32)),
    ):
        with pytest.raises(ForgedError):
            nodes.client("B2" if changed.edge != seen.edge else "B1", "L", changed)

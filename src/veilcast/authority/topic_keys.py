"""The keys of a topic by epoch: made by the authority, bridged at a revocation, used by members.

K_e is derived from the topic's master key. A member gets the K_e of its own epochs and nothing that makes others, so a
grant ends by itself. When a member is revoked from epoch E on, the members that stay get a fresh secret, the bridge,
and from E on the key is a hash of bridge and old key. A member without the bridge has nothing, and a member with it
still has only the epochs of its grant. In `paper` (P1) a topic has one key for ever, and one key pair that all its
publishers share.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.crypto.certificate import EPOCH_MAX, Certificate, CertificateKind, certify
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.topic_token import epoch_token, paper_token

TopicRole: TypeAlias = Literal["publisher", "subscriber"]


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From epoch `first` on, keys are bridged with `secret`."""

    first: int
    secret: Secret


def derive_epoch_key(master: Secret, bridges: tuple[Bridge, ...], epoch: int) -> Secret:
    """K_e, as the authority derives it."""
    key = derive(master, b"vc/epoch", epoch.to_bytes(8, "big"))
    for bridge in bridges:
        if bridge.first <= epoch:
            key = bridge_key(key, bridge.secret)
    return key


def bridge_key(key: Secret, bridge: Secret) -> Secret:
    return derive(bridge, b"vc/bridge", key.reveal())


def derive_paper_key(master: Secret) -> Secret:
    return derive(master, b"vc/paper")


def token_of(key: Secret, profile: Profile, topic: str, epoch: int) -> bytes:
    """The topic's name on the wire in this epoch."""
    return paper_token(key, topic) if profile == "paper" else epoch_token(key, topic, epoch)


def derive_content_key(key: Secret) -> Secret:
    """The key that seals the topic's publications.

    It differs from the token's key, so that neither reveals the other.
    """
    return derive(key, b"vc/content")


def derive_publisher_key(seed: Secret, topic: str, epoch: int) -> SigningKey:
    """A publisher's fresh key for one epoch, derived from a seed that never leaves the publisher."""
    return SigningKey(derive(seed, b"vc/publisher", topic.encode(), epoch.to_bytes(8, "big")))


def certify_publisher(issuer: SigningKey, public: bytes, token: bytes, record: TopicRecord, epoch: int) -> bytes:
    """The signature that makes a key a publisher's. The publisher knows all other fields of its certificate."""
    first, last = _validity_of(record, epoch)
    return certify(
        issuer, CertificateKind.PUBLISHER, public, token, first, last, record.lineage, record.cover
    ).signature


def build_publisher_certificate(
    public: bytes, token: bytes, record: TopicRecord, epoch: int, signature: bytes
) -> Certificate:
    """The certificate with that signature."""
    first, last = _validity_of(record, epoch)
    return Certificate(CertificateKind.PUBLISHER, public, token, first, last, record.lineage, record.cover, signature)


def _validity_of(record: TopicRecord, epoch: int) -> tuple[int, int]:
    """The first and last epoch of a publisher certificate: this epoch only in `hardened` (one-show), every epoch in
    `paper`.
    """
    return (0, EPOCH_MAX) if record.profile == "paper" else (epoch, epoch)

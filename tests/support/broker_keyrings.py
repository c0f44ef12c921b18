"""Common inputs of broker tests: an authority with topics, members, an operator, and overlays of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, sign_overlay
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.topics import Integers, Reals, Schema, Strings

SECOND = 1_000_000
EPOCH_US = 600 * SECOND
START = 1_800_000_000 * SECOND
EPOCH = epoch_of(START, EPOCH_US)
TOPIC, OTHER = "news/veilcast-planted-topic", "sport"
SCHEMA = Schema((Integers("level", 0, 15, 4), Strings("kind"), Reals("price", 0, 1000, 8)))
CHAIN = (("B1", "B2"), ("B2", "B3"))
OPERATOR = SigningKey(Secret(b"the operator of all these brokers"[:32]))


@cache
def authority(profile: Profile) -> Authority:
    entropy = SeededEntropy(derive_bytes(0, "village", profile))
    made = issuer.create(EPOCH_US, entropy)
    for topic in (TOPIC, OTHER):
        made = issuer.declare(made, TopicRecord(topic, SCHEMA, profile=profile), entropy)
    return made


@cache
def keyring(number: int, profile: Profile, role: str = "publisher", topics: tuple[str, ...] = (TOPIC,)) -> Keyring:
    entropy = SeededEntropy(derive_bytes(number + 1, "village member", profile, role, *topics))
    wanted: list[Any] = [(topic, role) for topic in topics]
    return issuer.grant_ready(authority(profile), f"{role} {number} {topics}", wanted, EPOCH, 64, entropy)[1]


def keys_of(
    number: int, profile: Profile, role: str = "publisher", topic: str = TOPIC, epoch: int = EPOCH
) -> TopicKeys:
    return keyring(number, profile, role, (topic,)).keys_at(epoch).topic(topic)


def root(profile: Profile) -> bytes:
    return keyring(0, profile).root


def signing(node: str, index: int) -> SigningKey:
    return SigningKey(Secret(derive_bytes(index, "replica", node)))


def overlay(links: Sequence[tuple[str, str]] = CHAIN, replicas: int = 3, version: int = 1) -> BrokerOverlay:
    names = dict.fromkeys(name for link in links for name in link)
    nodes = tuple(
        NodeEntry(
            name,
            0,
            tuple(
                Replica(signing(name, index).public, f"{name}.{index}", f"{name}.{index}")
                for index in range(1, replicas + 1)
            ),
        )
        for name in names
    )
    return BrokerOverlay(version, nodes, tuple(links))


def signed_overlay(links: Sequence[tuple[str, str]] = CHAIN, replicas: int = 3) -> SignedOverlay:
    return sign_overlay(overlay(links, replicas), OPERATOR)

"""Keys for the nodes of a mesh that are members of their own, with their own lots, habits and grants.

One authority in memory for each set of topics and length of epochs; keyrings are made when they are first asked for,
and kept for the process, since a hundred worlds ask for the same ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.sim.engine import START_US
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.topics import Schema


def make_hardened_keyring(topic: str, cover: float, epoch_us: int, role: str, number: int) -> Keyring:
    """The keyring of the node of this number, in this role; a forwarder's is a membership and nothing else."""
    wanted = () if role == "forwarder" else ((topic, role),)
    return make_keyring(make_topic_records((topic,), cover, "hardened"), epoch_us, wanted, number)


@cache
def make_keyring(
    topics: tuple[TopicRecord, ...],
    epoch_us: int,
    wanted: tuple[tuple[str, Any], ...],
    number: int,
    standing: TlsRole | None = None,
) -> Keyring:
    """The keyring of the node of this number, with a grant for each topic that it has a role in."""
    roles = [role for _, role in wanted] or ["forwarder"]
    entropy = SeededEntropy(derive_bytes(number, "member", *roles))
    first = epoch_of(START_US, epoch_us)
    authority = _authority(topics, epoch_us)
    _, keyring = issuer.grant_ready(authority, roles[0], list(wanted), first, KEYRING_EPOCHS, entropy, standing)
    return keyring


@cache
def make_topic_records(names: tuple[str, ...], cover: float, profile: Profile) -> tuple[TopicRecord, ...]:
    """Topics that are matched by their names alone."""
    return tuple(TopicRecord(name, Schema(), cover_share=cover, profile=profile) for name in names)


@cache
def _authority(topics: tuple[TopicRecord, ...], epoch_us: int) -> Authority:
    entropy = SeededEntropy(derive_bytes(0, "authority"))
    authority = issuer.create(epoch_us, entropy)
    for record in topics:
        authority = issuer.declare(authority, record, entropy)
    return authority


KEYRING_EPOCHS: Final = 64
"""For how many epochs from the start on the keys hold."""

"""Keyrings of simulated members, each with its own membership and grants.

There is one authority in memory for each set of topics and epoch length. Keyrings are made on first use and kept for
the process, since a hundred worlds use the same ones.
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


def make_hardened_keyring(
    topic: str, cover: float, epoch_us: int, role: str, number: int, epochs: int | None = None
) -> Keyring:
    """The keyring of the member with this number and role; a forwarder's has a membership and no grant."""
    wanted = () if role == "forwarder" else ((topic, role),)
    return make_keyring(make_topic_records((topic,), cover, "hardened"), epoch_us, wanted, number, epochs=epochs)


@cache
def make_keyring(
    topics: tuple[TopicRecord, ...],
    epoch_us: int,
    wanted: tuple[tuple[str, Any], ...],
    number: int,
    standing: TlsRole | None = None,
    epochs: int | None = None,
) -> Keyring:
    """The keyring of the member with this number, with one grant for each (topic, role) in `wanted`."""
    roles = [role for _, role in wanted] or ["forwarder"]
    entropy = SeededEntropy(derive_bytes(number, "member", *roles))
    first = epoch_of(START_US, epoch_us)
    authority = _authority(topics, epoch_us)
    _, keyring = issuer.grant_ready(
        authority, roles[0], list(wanted), first, epochs or KEYRING_EPOCHS, entropy, standing
    )
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
"""Number of epochs, from the start of the world, in which the keys are valid, unless others are asked for."""

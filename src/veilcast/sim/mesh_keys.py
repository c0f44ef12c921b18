"""Keys for the nodes of a hardened mesh: each node is a member of its own, with its own lots and habits.

One authority in memory for each length of epochs; keyrings are made when they are first asked for, and kept for the
process, since a hundred worlds ask for the same ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.record import TopicRecord
from veilcast.sim.chance import SeededEntropy, derive
from veilcast.sim.engine import START_US
from veilcast.topics import Schema


@cache
def hardened_keyring(topic: str, cover: float, epoch_us: int, role: str, number: int) -> Keyring:
    """The keyring of the node of this number, in this role; a forwarder's is a membership and nothing else."""
    entropy = SeededEntropy(derive(number, "member", role))
    wanted: list[tuple[str, Any]] = [] if role == "forwarder" else [(topic, role)]
    first = epoch_of(START_US, epoch_us)
    _, keyring = issuer.grant_ready(_authority(topic, cover, epoch_us), role, wanted, first, EPOCHS, entropy)
    return keyring


@cache
def _authority(topic: str, cover: float, epoch_us: int) -> Authority:
    entropy = SeededEntropy(derive(0, "authority"))
    record = TopicRecord(topic, Schema(), cover_share=cover, profile="hardened")
    return issuer.declare(issuer.create(epoch_us, entropy), record, entropy)


EPOCHS: Final = 64
"""For how many epochs from the start on the keys hold."""

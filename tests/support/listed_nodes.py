"""Members of one authority that are nodes of a tree, and the keyring of its directory; made once for each process."""

from __future__ import annotations

import random
from functools import cache

from veilcast.authority import issuer
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.wire.tree import ListedNode

EPOCH_US, EPOCHS, FIRST = 3_600_000_000, 24, 100
NOW = FIRST * EPOCH_US
SECOND = 1_000_000


@cache
def make_members(count: int) -> tuple[Authority, Keyring, tuple[Keyring, ...]]:
    """The authority, the directory and `count` nodes."""
    entropy = random.Random(11).randbytes
    state = issuer.create(EPOCH_US, entropy)
    state, directory = issuer.grant_ready(state, "directory", [], FIRST, EPOCHS, entropy, "directory")
    nodes = []
    for number in range(count):
        state, node = issuer.grant_ready(state, f"node {number}", [], FIRST, EPOCHS, entropy, "member")
        nodes.append(node)
    return state, directory, tuple(nodes)


def address_of(number: int) -> Address:
    return Address(f"node{number}.example:4100")


def make_listed(count: int, seed: int = 1) -> list[ListedNode]:
    """`count` listed nodes without certificates."""
    draw = random.Random(seed).randbytes
    return [ListedNode(address_of(number), public_of(Secret(draw(32))), NOW, NOW + SECOND) for number in range(count)]

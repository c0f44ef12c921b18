"""Purposes: what a stream is for, as a part of its peer's name.

Pure. Who dials two purposes dials two streams, and the anonymous network takes each another way. So whoever is reached
for two cannot tell that it was by one node; what must not be linked to anything else has a fresh purpose. A driver
opens a stream to what stands behind the first `@`, and isolates it by what stands before.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import LocalError
from veilcast.machine import Address, Entropy


def way(node: Address, purpose: str) -> Address:
    """The name of a peer: this node, for this purpose."""
    if "@" in purpose or not purpose or not node:
        raise LocalError("a purpose has at least one character, and no @; a node has an address")
    return Address(f"{purpose}@{node}")


def split(peer: Address) -> tuple[str, Address]:
    """The purpose and the node that such a name is made of."""
    purpose, at, node = peer.partition("@")
    if not (at and purpose and node):
        raise LocalError("a peer's name is made of a purpose and a node")
    return purpose, Address(node)


def fresh(purpose: str, entropy: Entropy) -> str:
    """A purpose that serves once."""
    return f"{purpose}-{entropy(_FRESH).hex()}"


DIRECTORY: Final = "directory"
"""To be listed: one stream, on which a node says who it is."""

FETCH: Final = "fetch"
"""To get the listing, and made fresh each time: whoever could tell who asks could show it a listing of its own."""

HOP: Final = "hop"
"""One stream to each parent, for all that climbs there."""

PUBLISH: Final = "publish"
INSTALL: Final = "install"
PROBE: Final = "probe"
"""These three are made fresh each time."""

_FRESH: Final = 16

"""Ways: the name of a peer that says what the stream to it is for, so that one peer can be reached by several streams.

Pure. A driver opens a stream to what stands behind the first `@`, and isolates it by what stands before.
"""

from __future__ import annotations

from veilcast.errors import LocalError
from veilcast.machine import Address


def name_stream(node: Address, purpose: str) -> Address:
    """The name of a peer: this node, for this purpose."""
    if "@" in purpose or not purpose or not node:
        raise LocalError("a purpose has at least one character, and no @; a node has an address")
    return Address(f"{purpose}@{node}")


def split_stream_name(peer: Address) -> tuple[str, Address]:
    """The purpose and the node that such a name is made of."""
    purpose, at, node = peer.partition("@")
    if not (at and purpose and node):
        raise LocalError("a peer's name is made of a purpose and a node")
    return purpose, Address(node)

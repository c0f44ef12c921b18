"""The purpose of a stream, as a part of its peer's name, so that one node can be reached by several streams.

A driver opens a stream to the address behind the first `@`, and isolates it by the purpose before.
"""

from __future__ import annotations

from veilcast.errors import LocalError
from veilcast.machine import Address


def name_stream(node: Address, purpose: str) -> Address:
    """The name of the peer that is this node, reached for this purpose."""
    if "@" in purpose or not purpose or not node:
        raise LocalError("a purpose has at least one character, and no @; a node has an address")
    return Address(f"{purpose}@{node}")


def split_stream_name(peer: Address) -> tuple[str, Address]:
    """The purpose and the node in such a name."""
    purpose, at, node = peer.partition("@")
    if not (at and purpose and node):
        raise LocalError("a peer's name is made of a purpose and a node")
    return purpose, Address(node)

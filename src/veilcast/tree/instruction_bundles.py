"""Bundles: instructions in layers, so that each node learns its own and whom to hand the rest to, and nothing else.

Pure. Recipients are laid out as a tree (`tree_shape`), and bundles are closed from the leaves up: a layer is a box for
one
node that holds its instruction and, for each of its children, a name and a closed bundle. Every box has a key of its
own, and two layers have nothing in common.

*Paper* (`wrap_tree`): the tree that is handed down is the tree that is installed. So a bundle is as long as the branch
below a node is large, and the first node to open one knows that it has the subscriber for a parent.

*Hardened* (`wrap_group`): nodes are told in groups that have nothing to do with the tree to be installed, and whatever
travels is padded to one size (`wire.padding`, `INSTALL_BLOCK`). How much a layer holds tells a node how many are told
after
it, and of the tree nothing. What stands beside the layers for all nodes alike is bound to them as `context`: who hands
it on cannot change it.

A layer, before it is closed: entry (16) | parent (16) | the parent's entry (16) | for each child: name (16), length of
its bundle (2), bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from veilcast.crypto.noise import Keypair
from veilcast.crypto.sealed_box import OVERHEAD, box, unbox
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy
from veilcast.tree import tree_shape
from veilcast.wire.geometry import ENTRY, INSTALL_BLOCK, LENGTH_PREFIX, NODE

NodeId: TypeAlias = bytes
"""The fingerprint of the subject of a node's certificate."""


class Instruction(msgspec.Struct, frozen=True):
    """What comes in under the name `entry` goes to `parent`, under the name `parent_entry`."""

    entry: bytes
    parent: NodeId
    parent_entry: bytes

    def __post_init__(self) -> None:
        if (len(self.entry), len(self.parent), len(self.parent_entry)) != (ENTRY, NODE, ENTRY):
            raise LocalError(f"an instruction has three names, of {ENTRY}, {NODE} and {ENTRY} bytes")


class Recipient(msgspec.Struct, frozen=True):
    """A node, and the X25519 key that its layers are closed for."""

    node: NodeId
    box: bytes

    def __post_init__(self) -> None:
        if len(self.node) != NODE:
            raise LocalError(f"a node's name has {NODE} bytes")


class BundleLayer(msgspec.Struct, frozen=True):
    """What one node finds in its bundle."""

    instruction: Instruction
    children: tuple[tuple[NodeId, bytes], ...]


def wrap_group(
    recipients: Sequence[Recipient],
    instructions: Sequence[Instruction],
    fan: int,
    entropy: Entropy,
    *,
    context: bytes = b"",
) -> bytes:
    """The bundle of the first, who hands on to `fan` others, and so on; it fits one message whatever the fan is."""
    if not 1 <= len(recipients) <= GROUP_MAX:
        raise LocalError(f"a group has 1 to {GROUP_MAX} nodes")
    return _wrapped(recipients, instructions, fan, entropy, context)[0]


def wrap_tree(
    recipients: Sequence[Recipient],
    instructions: Sequence[Instruction],
    fan: int,
    entropy: Entropy,
    *,
    context: bytes = b"",
) -> list[tuple[NodeId, bytes]]:
    """The bundles for the children of the root. Recipients in the order of their places, without the root itself."""
    bundles = _wrapped(recipients, instructions, fan, entropy, context, first=1)
    return [
        (recipients[place - 1].node, bundles[place - 1])
        for place in tree_shape.child_places(0, fan, len(recipients) + 1)
    ]


def open_layer(reader: Keypair, bundle: bytes, *, context: bytes = b"") -> BundleLayer:
    """What the node finds that the outermost layer is for; `ForgedError` or `MalformedError` for what is none."""
    plain = unbox(reader, bundle, purpose=_PURPOSE, context=context)
    if len(plain) < _INSTRUCTION:
        raise MalformedError("a layer without an instruction")
    instruction = Instruction(plain[:ENTRY], plain[ENTRY : ENTRY + NODE], plain[ENTRY + NODE : _INSTRUCTION])
    return BundleLayer(instruction, tuple(_children(plain[_INSTRUCTION:])))


def _wrapped(
    recipients: Sequence[Recipient],
    instructions: Sequence[Instruction],
    fan: int,
    entropy: Entropy,
    context: bytes,
    first: int = 0,
) -> list[bytes]:
    """Everyone's bundle. The places of the recipients begin at `first`."""
    if len(recipients) != len(instructions) or fan < 1:
        raise LocalError("every recipient has one instruction, and hands on to at least one")
    bundles = [b""] * len(recipients)
    for at in reversed(range(len(recipients))):
        told = instructions[at]
        parts = [told.entry, told.parent, told.parent_entry]
        for place in tree_shape.child_places(at + first, fan, len(recipients) + first):
            bundle = bundles[place - first]
            if len(bundle) > _BUNDLE_MAX:
                raise LocalError("too many nodes stand below one other: spread them wider")
            parts += [recipients[place - first].node, len(bundle).to_bytes(_LENGTH, "big"), bundle]
        bundles[at] = box(recipients[at].box, b"".join(parts), purpose=_PURPOSE, context=context, entropy=entropy)
    return bundles


def _children(rest: bytes) -> Iterator[tuple[NodeId, bytes]]:
    while rest:
        head, length = rest[: NODE + _LENGTH], int.from_bytes(rest[NODE : NODE + _LENGTH], "big")
        end = NODE + _LENGTH + length
        if len(head) < NODE + _LENGTH or not OVERHEAD <= length <= len(rest) - len(head):
            raise MalformedError("a layer whose children do not fill it")
        yield rest[:NODE], rest[len(head) : end]
        rest = rest[end:]


_PURPOSE: Final = b"vc/tree-layer"
_LENGTH: Final = 2
_BUNDLE_MAX: Final = (1 << 8 * _LENGTH) - 1
_INSTRUCTION: Final = ENTRY + NODE + ENTRY

GROUP_MAX: Final = (INSTALL_BLOCK - LENGTH_PREFIX + NODE + _LENGTH) // (OVERHEAD + _INSTRUCTION + NODE + _LENGTH)
"""So many layers fit a padded block: each costs the same, wherever it stands."""

"""Instruction bundles: layers that show each node its own instruction and the next recipients, nothing else.

Pure. Recipients form a tree (`tree_shape`), and bundles are sealed from the leaves up. A layer is a sealed box for one
node. It contains the node's instruction and, for each of its children, a name and a sealed bundle. Every box has its
own key, and two layers have nothing in common.

*Paper* (`wrap_tree`): instructions travel along the tree that they install. So the size of a bundle shows the size of
the branch below a node, and the first node to open one knows that its parent is the subscriber.

*Hardened* (`wrap_group`): nodes receive their instructions in groups that are independent of the tree to be installed,
and every message is padded to one size (`wire.padding`, `INSTALL`). The size of a layer tells a node how many
recipients follow it, and nothing about the tree. Data that is the same for all nodes travels beside the layers and is
bound to them as `context`: a node that passes it on cannot change it.

A layer before sealing: entry (16) | parent (16) | the parent's entry (16) | for each child: name (16), length of its
bundle (2), bundle.
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
    """A message that arrives under the name `entry` goes to `parent`, under the name `parent_entry`."""

    entry: bytes
    parent: NodeId
    parent_entry: bytes

    def __post_init__(self) -> None:
        if (len(self.entry), len(self.parent), len(self.parent_entry)) != (ENTRY, NODE, ENTRY):
            raise LocalError(f"an instruction has three names, of {ENTRY}, {NODE} and {ENTRY} bytes")


class Recipient(msgspec.Struct, frozen=True):
    """A node, and the X25519 key that seals its layers."""

    node: NodeId
    box: bytes

    def __post_init__(self) -> None:
        if len(self.node) != NODE:
            raise LocalError(f"a node's name has {NODE} bytes")


class BundleLayer(msgspec.Struct, frozen=True):
    """The content of one node's bundle."""

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
    """The bundle of the first recipient, which passes bundles to `fan` others, and so on; it fits one message for
    any fan."""
    if not 1 <= len(recipients) <= GROUP_MAX:
        raise LocalError(f"a group has 1 to {GROUP_MAX} nodes")
    return _wrap_all(recipients, instructions, fan, entropy, context)[0]


def wrap_tree(
    recipients: Sequence[Recipient],
    instructions: Sequence[Instruction],
    fan: int,
    entropy: Entropy,
    *,
    context: bytes = b"",
) -> list[tuple[NodeId, bytes]]:
    """The bundles for the children of the root. `recipients` are in the order of their places, without the root
    itself."""
    bundles = _wrap_all(recipients, instructions, fan, entropy, context, first=1)
    return [
        (recipients[place - 1].node, bundles[place - 1])
        for place in tree_shape.child_places(0, fan, len(recipients) + 1)
    ]


def open_layer(keypair: Keypair, bundle: bytes, *, context: bytes = b"") -> BundleLayer:
    """Open the outermost layer as its recipient; `ForgedError` or `MalformedError` for invalid input."""
    plain = unbox(keypair, bundle, purpose=_PURPOSE, context=context)
    if len(plain) < _INSTRUCTION:
        raise MalformedError("a layer without an instruction")
    instruction = Instruction(plain[:ENTRY], plain[ENTRY : ENTRY + NODE], plain[ENTRY + NODE : _INSTRUCTION])
    return BundleLayer(instruction, tuple(_read_children(plain[_INSTRUCTION:])))


def _wrap_all(
    recipients: Sequence[Recipient],
    instructions: Sequence[Instruction],
    fan: int,
    entropy: Entropy,
    context: bytes,
    first: int = 0,
) -> list[bytes]:
    """The bundle of each recipient. The recipients' places begin at `first`."""
    if len(recipients) != len(instructions) or fan < 1:
        raise LocalError("every recipient needs one instruction, and the fan must be at least 1")
    bundles = [b""] * len(recipients)
    for at in reversed(range(len(recipients))):
        instruction = instructions[at]
        parts = [instruction.entry, instruction.parent, instruction.parent_entry]
        for place in tree_shape.child_places(at + first, fan, len(recipients) + first):
            bundle = bundles[place - first]
            if len(bundle) > _BUNDLE_MAX:
                raise LocalError("too many nodes below one node: use a larger fan")
            parts += [recipients[place - first].node, len(bundle).to_bytes(_LENGTH, "big"), bundle]
        bundles[at] = box(recipients[at].box, b"".join(parts), purpose=_PURPOSE, context=context, entropy=entropy)
    return bundles


def _read_children(rest: bytes) -> Iterator[tuple[NodeId, bytes]]:
    while rest:
        head, length = rest[: NODE + _LENGTH], int.from_bytes(rest[NODE : NODE + _LENGTH], "big")
        end = NODE + _LENGTH + length
        if len(head) < NODE + _LENGTH or not OVERHEAD <= length <= len(rest) - len(head):
            raise MalformedError("a layer with malformed children")
        yield rest[:NODE], rest[len(head) : end]
        rest = rest[end:]


_PURPOSE: Final = b"vc/tree-layer"
_LENGTH: Final = 2
_BUNDLE_MAX: Final = (1 << 8 * _LENGTH) - 1
_INSTRUCTION: Final = ENTRY + NODE + ENTRY

GROUP_MAX: Final = (INSTALL_BLOCK - LENGTH_PREFIX + NODE + _LENGTH) // (OVERHEAD + _INSTRUCTION + NODE + _LENGTH)
"""Layers that fit a padded block: each has the same cost, at any place."""

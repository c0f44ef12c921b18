"""Instructions and messages for the nodes of a tree, made by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from support.tree_network import EPOCH_US, QUICK_CONFIG, START_US, TreeNetwork, keyring_of, name_of
from veilcast.machine import Address
from veilcast.tree.instruction_bundles import Instruction, Recipient, wrap_group
from veilcast.tree.membership_proof import MembershipProver, bundle_context
from veilcast.tree.routing_table import entry_name
from veilcast.wire import decode, encode
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad
from veilcast.wire.tree import Install

N0, N1, N2 = (f"n{number}:1" for number in range(3))
UNTIL = (START_US // EPOCH_US + 2) * EPOCH_US
TAG, OTHER = b"t" * 16, b"o" * 16
GROUPS = ((TAG,),)
PROVER = MembershipProver(keyring_of(0, "hardened"))
BODY = bytes(1053)


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def install(
    to: int, told: Instruction, until_us: int = UNTIL, groups: Any = GROUPS, number: int = 7, proven: bool = True
) -> Install:
    """Instructions for one node, as any member can make them."""
    box = keyring_of(to, "hardened").membership.certificate.leaf.subject
    bundle = wrap_group(
        [Recipient(name_of(to, "hardened"), box)],
        [told],
        1,
        lambda size: bytes(size),
        context=bundle_context(until_us, groups),
    )
    made = Install(number, until_us, groups, pad(bundle, INSTALL_BLOCK))
    return PROVER.prove(made) if proven else made


def told(own: int, parent: int, parent_token: int) -> Instruction:
    return Instruction(token(own), name_of(parent, "hardened"), entry_name(token(parent_token)))


def ask(grove: TreeNetwork, name: str, message: Any, source: str = "in:stranger") -> list[Any]:
    """Send something to a node on a stream of a stranger, and return what is answered there."""
    machine = grove.machine(name)
    machine.receive(encode(message), Address(source), grove.now)
    frames = machine.frames_to_send(grove.now, 1 << 20)
    grove.resend(name, [frame for frame in frames if frame.destination != source])
    return [decode(frame.data) for frame in frames if frame.destination == source]


def entries(grove: TreeNetwork, name: str) -> int:
    return int(grove.machine(name).sizes()["entries"])


def quiet(nodes: int = 3, **changes: Any) -> TreeNetwork:
    grove = TreeNetwork(nodes, config=msgspec.structs.replace(QUICK_CONFIG, **changes))
    grove.run(6)
    return grove

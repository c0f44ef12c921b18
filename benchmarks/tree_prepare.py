"""How long does a subscriber of the tree take to prepare a subscription of 10,000 nodes?

    python benchmarks/tree_prepare.py [--json] [--nodes N]

Prepared is: everyone's place by the keyed permutation, everyone's instruction, and the groups' bundles in layers, all
padded to one size. Beside it stands what one would write without layers: a shuffled list, and for each node a
`SealedBox` of PyNaCl around the same instruction. That is n messages through the anonymous network where bundles are
n / 32. The two take turns, and the best turn counts, by the clock and by the time that the process had of a core: the
second is what the first would be on an idle machine. Every bundle is opened again by its nodes, and by what they are
told, every node's way must lead to the guards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

import numpy as np
from nacl.public import PrivateKey, PublicKey, SealedBox

from veilcast.crypto.noise import Keypair
from veilcast.crypto.secret import Secret
from veilcast.tree import tree_shape
from veilcast.tree.instruction_bundles import Instruction, NodeId, Recipient, open_layer, wrap_group
from veilcast.tree.layout import HardenedLayout
from veilcast.tree.permutation import Permutation
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad, unpad

T = TypeVar("T")
Bundles = list[tuple[NodeId, bytes]]


@dataclass
class PrepareContender:
    name: str
    messages: int = 0
    size: int = 0
    seconds: float = float("inf")
    core_seconds: float = float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=10_000)
    arguments = parser.parse_args()
    n: int = arguments.nodes
    layers, boxes, places = measure_contenders(n)
    times = boxes.core_seconds / layers.core_seconds
    holds = layers.core_seconds < TARGET_SECONDS * max(1.0, n / 10_000)
    if arguments.json:
        contenders = {each.name: asdict(each) for each in (layers, boxes, places)}
        print(json.dumps({"nodes": n, "contenders": contenders, "times_the_peer": times, "target_holds": holds}))
        return
    print(f"a subscription of {n} nodes, best of {TURNS} turns")
    print(f"{'':24}{'s':>8}{'core s':>8}{'core us a node':>16}{'messages':>10}{'MB':>8}")
    for each in (layers, boxes, places):
        core = f"{each.core_seconds:8.3f}{each.core_seconds / n * 1e6:16.2f}"
        print(f"{each.name:24}{each.seconds:8.3f}{core}{each.messages:10}{each.size / 1e6:8.2f}")
    print(f"\nlayers are prepared {times:.2f} times as fast as a sealed box for each node")
    print(f"under {TARGET_SECONDS} s for 10,000 nodes: {'yes' if holds else 'no'}")


def measure_contenders(n: int) -> tuple[PrepareContender, PrepareContender, PrepareContender]:
    secrets = [Secret(os.urandom(32)) for _ in range(n)]
    readers = [Keypair(each) for each in secrets]
    everyone = [Recipient(os.urandom(16), reader.public) for reader in readers]
    layers, boxes, places = (PrepareContender(name) for name in ("layers", "sealed boxes", "places alone, in arrays"))
    for _ in range(TURNS):
        plan, bundles = time_job(lambda: prepare_bundles(everyone), layers)
        sealed = time_job(lambda: naive(everyone), boxes)
        time_job(lambda: Permutation(Secret(os.urandom(32)), n).places(np.arange(n)), places)
    check_bundles(plan, bundles, dict(zip((each.node for each in everyone), readers, strict=True)))
    check_boxes(sealed, everyone, secrets)
    layers.messages, layers.size = len(bundles), sum(len(block) for _, block in bundles)
    boxes.messages, boxes.size = len(sealed), sum(map(len, sealed))
    return layers, boxes, places


def prepare_bundles(everyone: Sequence[Recipient]) -> tuple[HardenedLayout, Bundles]:
    nodes = [each.node for each in everyone]
    plan = HardenedLayout(Secret(os.urandom(32)), nodes, home=nodes[0], guards=nodes[1:4], r=3)
    told = [plan.instruction(number) for number in range(len(nodes))]
    bundles = []
    for group in plan.groups(GROUP):
        sealed = wrap_group([everyone[number] for number in group], [told[number] for number in group], FAN, os.urandom)
        bundles.append((nodes[group[0]], pad(sealed, INSTALL_BLOCK)))
    return plan, bundles


def naive(everyone: Sequence[Recipient]) -> list[bytes]:
    """Boxes in the order of the nodes."""
    order = list(range(len(everyone)))
    random.SystemRandom().shuffle(order)
    place_of = {number: place for place, number in enumerate(order)}
    b = tree_shape.branching_factor(len(everyone), 3)
    boxes = []
    for number, each in enumerate(everyone):
        place = place_of[number]
        parent = everyone[order[tree_shape.parent_place(place, b)]].node if place else each.node
        names = os.urandom(16) + parent + os.urandom(16)
        boxes.append(bytes(SealedBox(PublicKey(each.box)).encrypt(names)))
    return boxes


def check_bundles(plan: HardenedLayout, bundles: Bundles, readers: dict[NodeId, Keypair]) -> None:
    """Everyone is told once, and by what all are told, all ways lead home."""
    found: dict[bytes, Instruction] = {}
    waiting = [(node, unpad(block)) for node, block in bundles]
    while waiting:
        node, sealed = waiting.pop()
        layer = open_layer(readers[node], sealed)
        found[layer.instruction.entry] = layer.instruction
        waiting += layer.children
    assert len(found) == len(plan.nodes) == len(readers)
    first = found[plan.entry(plan.node_at(0))]
    assert first.parent == plan.guards[-1]
    for entry in found:
        steps = 0
        while entry in found:
            entry, steps = found[entry].parent_entry, steps + 1
        assert entry == first.parent_entry
        assert steps <= 4


def check_boxes(boxes: Sequence[bytes], everyone: Sequence[Recipient], secrets: Sequence[Secret]) -> None:
    known = {each.node for each in everyone}
    for sealed, secret in zip(boxes, secrets, strict=True):
        assert SealedBox(PrivateKey(secret.reveal())).decrypt(sealed)[16:32] in known


def time_job(job: Callable[[], T], contender: PrepareContender) -> T:
    begun, begun_core = time.perf_counter(), time.process_time()
    result = job()
    contender.core_seconds = min(contender.core_seconds, time.process_time() - begun_core)
    contender.seconds = min(contender.seconds, time.perf_counter() - begun)
    return result


TURNS: Final = 3
GROUP: Final = 32
FAN: Final = 4
TARGET_SECONDS: Final = 2.0

if __name__ == "__main__":
    main()

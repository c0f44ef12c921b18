"""What the instructions of a tree tell those who hand them on, open them, or keep them for another time."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from veilcast.crypto.agree import public_of
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.noise import Keypair
from veilcast.sim.chance import SeededEntropy
from veilcast.topics import All, Label, Range
from veilcast.tree.bundles import Instruction, Layer, Recipient, open_layer, wrap_group
from veilcast.tree.proofs import Prover, context_of
from veilcast.wire import encode
from veilcast.wire.geometry import INSTALL
from veilcast.wire.padding import pad, unpad
from veilcast.wire.tree import Install

sys.path.insert(0, str(Path(__file__).parent))
from grove import EPOCH_US, QUICK, TOPIC, Grove, keyring


def opened(grove: Grove, since: int = 0) -> list[tuple[str, str, Install, Layer]]:
    """Every instruction that arrived: at whom, by which stream, as it came, and what was in it."""
    boxes = {str(name): Keypair(keyring(number, "hardened").membership.link) for number, name in enumerate(grove.names)}
    return [
        (name, source, install, open_layer(boxes[name], unpad(install.sealed), context=_context(install)))
        for name, source, install in grove.seen[since:]
        if isinstance(install, Install)
    ]


def _context(install: Install) -> bytes:
    return context_of(install.until_us, install.groups)


def test_where_a_subscriber_stands_among_those_who_are_told_is_chance() -> None:
    """A subscriber that always came last, or never first, would be counted out by those who hand on."""
    last, first = 0, 0
    for seed in range(12):
        grove = Grove(5, seed=seed)
        grove.run(4)
        grove.subscribe("n0:1")
        grove.run(3)
        home = grove.machine("n0:1").name
        handed = [layer.children for _, _, _, layer in opened(grove) if layer.children]
        last += sum(children[-1][0] == home for children in handed)
        first += not handed
    assert 0 < last < 8
    assert 0 < first < 8


def test_a_node_whose_table_others_have_filled_still_subscribes() -> None:
    grove = Grove(4, config=msgspec.structs.replace(QUICK, entries_max=1, chain=1))
    grove.run(4)
    grove.subscribe("n0:1")
    grove.run(4)
    assert grove.machine("n1:1").sizes()["entries"] == 1
    grove.subscribe("n1:1", All(Label(TOPIC), Range("level", 1, 3)))
    grove.run(4)
    assert grove.machine("n1:1").sizes()["entries"] == 1


def test_instructions_that_come_again_are_not_handed_on_again() -> None:
    """Or whoever repeats one message would have a whole group repeat it."""
    grove = Grove(6)
    grove.run(6)
    grove.subscribe("n0:1")
    grove.run(3)
    name, _, install, _ = next(each for each in opened(grove) if each[3].children and each[0] != "n0:1")
    before = len(opened(grove))
    for _ in range(10):
        grove.inject(name, encode(install))
    grove.run(3)
    assert len(opened(grove)) == before


def test_who_knows_better_hands_on_to_those_who_do_not() -> None:
    grove = Grove(4)
    grove.run(6)
    rings = [keyring(number, "hardened") for number in (1, 2)]
    told = [Recipient(fingerprint(public_of(ring.membership.link)), public_of(ring.membership.link)) for ring in rings]
    says = [Instruction(bytes([number]) * 16, told[0].node, bytes(16)) for number in (1, 2)]
    later, groups = (grove.now // EPOCH_US + 2) * EPOCH_US, ((bytes(16),),)

    def install(count: int, until_us: int) -> bytes:
        bundle = wrap_group(told[:count], says[:count], 2, SeededEntropy(b"told"), context=context_of(until_us, groups))
        return encode(Prover(rings[0]).prove(Install(7, until_us, groups, pad(bundle, INSTALL))))

    grove.inject("n1:1", install(1, later))
    grove.inject("n1:1", install(2, later - 1))
    grove.run(2)
    assert [grove.machine(name).sizes()["entries"] for name in ("n1:1", "n2:1")] == [1, 1]

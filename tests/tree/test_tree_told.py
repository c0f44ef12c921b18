"""What the instructions of a tree tell those who hand them on, open them, or keep them for another time."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from veilcast.crypto.noise import Keypair
from veilcast.topics import All, Label, Range
from veilcast.tree.bundles import Layer, open_layer
from veilcast.tree.proofs import context_of
from veilcast.wire.padding import unpad
from veilcast.wire.tree import Install

sys.path.insert(0, str(Path(__file__).parent))
from grove import QUICK, TOPIC, Grove, keyring


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

"""Taps on the real nodes of a tree: the rows of the table `server` that a coalition could write.

A node of the coalition opens its bundles with its own key. It learns its instruction: the node to forward to, the tags,
and the expiry; and the number of bytes. It does not learn the sender. The tap uses nothing else, although it sees the
streams of all nodes. There is a row for each tag, in the epoch in which the instruction ends, so that all rows of one
tree have one epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from veilcast.core.stream_purpose import split_stream_name
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.noise import Keypair
from veilcast.machine import Address, Frame
from veilcast.observe import ServerRow
from veilcast.sim.checkers import Checker
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import World
from veilcast.tree.instruction_bundles import open_layer
from veilcast.tree.membership_proof import bundle_context
from veilcast.wire import decode
from veilcast.wire.padding import unpad
from veilcast.wire.tree import TYPE_BYTES, Install


class TreeTap(Checker):
    """The tap of one run, in a world of this population."""

    def __init__(self, run: str, population: TreePopulation, coalition: Collection[Address], epoch_us: int) -> None:
        self.rows: list[ServerRow] = []
        self._run, self._epoch_us = run, epoch_us
        self._padded = population.tree.profile == "hardened"
        links = {name: population.keyring(name, epoch_us).membership.link for name in population.node_names()}
        self._names = {fingerprint(public_of(link)): name for name, link in links.items()}
        self._keys = {name: Keypair(links[name]) for name in coalition}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] == _INSTALL and "@" in frame.destination:
                _, observer = split_stream_name(frame.destination)
                if observer in self._keys:
                    self._note(world.clock(observer), observer, frame.data)

    def _note(self, now: int, observer: Address, data: bytes) -> None:
        message = decode(data)
        assert isinstance(message, Install)
        bundle = unpad(message.sealed) if self._padded else message.sealed
        layer = open_layer(self._keys[observer], bundle, context=bundle_context(message.until_us, message.groups))
        parent, epoch = self._names[layer.instruction.parent], message.until_us // self._epoch_us
        tags = [tag for group in message.groups for tag in group]
        self.rows += [ServerRow(self._run, epoch, now, f"tree:{observer}", parent, tag, len(data)) for tag in tags]


_INSTALL: Final = next(bytes((number,)) for number, kind in TYPE_BYTES.items() if kind is Install)

"""Checkers of the tree: publications climb along trees, and go nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from veilcast.core.stream_purpose import split_stream_name
from veilcast.machine import Address, Frame
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.tree.streams import HOP_STREAM
from veilcast.wire import decode
from veilcast.wire.base import Message
from veilcast.wire.tree import TYPE_BYTES, ForwardPublication, Offer

if TYPE_CHECKING:
    from veilcast.sim.world import World


class NoMultiplication(Checker):
    """A node forwards a message under no more entries than it received it under, where nothing fails.

    After a failure, a message that waits for a lost parent is also sent to its successors: up to `PARENTS_MAX` for each
    entry are allowed. The origin of a publication sends it to every subscriber. A repeated message for the same entry
    counts once. Only in the hardened profile do messages name their entry.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._came: dict[tuple[bytes, Address], dict[bytes, None]] = {}
        self._went: dict[tuple[bytes, Address], dict[bytes, None]] = {}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] in (_CARRY, _OFFER):
                self._see(address, frame, decode(frame.data))

    def _see(self, address: Address, frame: Frame, message: Message) -> None:
        assert isinstance(message, ForwardPublication | Offer)
        purpose, target = split_stream_name(frame.destination)
        came = self._came.setdefault((message.message, target), {})
        if isinstance(message, Offer):
            came.update((b"%d" % number, None) for number in range(self._wanted))
            return
        came[message.entry] = None
        if purpose == HOP_STREAM:
            went = self._went.setdefault((message.message, address), {})
            went[message.entry] = None
            most = PARENTS_MAX * len(self._came.get((message.message, address), ()))
            if len(went) > most:
                raise ViolationError(f"{address} sends a message on under {len(went)} entries, and {most} were to be")


class CopyCounter(Checker):
    """Counts the copies of publications that nodes send to their parents, by node; more than `most` are a violation."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.sent: Counter[Address] = Counter()
        self.total = 0

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] in (_CARRY, _OFFER) and frame.destination.startswith(_TO_PARENT):
                self.sent[address] += 1
                self.total += 1
        if self.total > self._most:
            raise ViolationError(f"{self.total} copies, and there is no end of it")


PARENTS_MAX: Final = 3
"""Successive parents that an entry may have while a message waits."""

_TYPE_OF = {kind: bytes((number,)) for number, kind in TYPE_BYTES.items()}
_TO_PARENT = f"{HOP_STREAM}@"
_CARRY, _OFFER = _TYPE_OF[ForwardPublication], _TYPE_OF[Offer]

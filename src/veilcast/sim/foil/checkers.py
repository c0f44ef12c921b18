"""Checkers of foiling from the broker's side, without any key: all candidates of an event look alike except their
topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from veilcast.errors import RemoteError
from veilcast.foil.event import CandidateHead, split_candidate
from veilcast.machine import Address, Frame
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version

if TYPE_CHECKING:
    from veilcast.sim.world import World


class CandidatesAlike(Checker):
    """Every event is sent with all its candidates, of one size and in the order of their slots. A repeated event equals
    the first one byte for byte. No message is retained."""

    def __init__(self, candidates: int, version: int) -> None:
        self._candidates, self._version = candidates, Version(version)
        self._events: dict[tuple[bytes, int], dict[int, bytes]] = {}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[0] >> 4 == _PUBLISH and "@" in frame.destination:
                packet = mqtt.decode(frame.data, self._version)
                assert isinstance(packet, PublishPacket)
                if packet.retained:
                    raise ViolationError(f"{address} asked the broker to retain something")
                self._see(address, packet)

    def _see(self, address: Address, packet: PublishPacket) -> None:
        try:
            head, _ = split_candidate(packet.payload)
        except RemoteError:
            return  # Not an event.
        if head.candidates != self._candidates:
            raise ViolationError(f"{address} sent {head.candidates} candidates in place of {self._candidates}")
        self._compare(address, head, packet.topic.encode() + b"\0" + packet.payload)

    def _compare(self, address: Address, head: CandidateHead, seen: bytes) -> None:
        known = self._events.setdefault((head.stream, head.number), {})
        if known.setdefault(head.slot, seen) != seen:
            raise ViolationError(f"{address} sent a candidate again, and otherwise than before")
        if any(len(each.partition(b"\0")[2]) != len(seen.partition(b"\0")[2]) for each in known.values()):
            raise ViolationError(f"{address} sent candidates of different sizes")

    def on_end(self, world: World) -> None:
        for (_, number), known in self._events.items():
            if len(known) < self._candidates:
                raise ViolationError(f"event {number} of a stream left with {len(known)} candidates")


_PUBLISH = 3

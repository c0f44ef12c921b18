"""What a node keeps about its neighbours over restarts: its anchors, and its first relay."""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError


class RelayRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first relay, and the counters of its replacement, in heartbeats."""

    key: bytes
    """Its certified link key; where there are no certificates, its address."""
    address: str
    """Where it was last linked."""
    away: int
    """For how long it has been away."""
    credit: int
    """What has been saved up for replacements."""
    stand_in: bytes = b""
    """The certified key of the neighbour that takes the relay's place in an upheaval, once it has been chosen."""


class NeighbourRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The one record of a neighbourhood."""

    anchors: list[str] = []
    relay: RelayRecord | None = None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def read_neighbour_record(data: bytes) -> NeighbourRecord:
    """A record of an earlier life; one that was written before first relays were kept is a list of anchors alone."""
    try:
        return _DECODER.decode(data)
    except TamperedError:
        return NeighbourRecord(_OLD_DECODER.decode(data))


_DAMAGED: Final = "the record of neighbours is damaged"
_DECODER: Final = MsgpackDecoder(NeighbourRecord, TamperedError, _DAMAGED)
_OLD_DECODER: Final = MsgpackDecoder(list[str], TamperedError, _DAMAGED)

"""The record about its neighbours that a node keeps over restarts: its anchors, and its first relay."""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError


class RelayRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first relay, and the counters of its replacement, in heartbeats."""

    key: bytes
    """Certified link key of the relay; its address if there are no certificates."""
    address: str
    """Address at which the relay was last linked."""
    away: int
    """Heartbeats for which the relay has been away."""
    credit: int
    """Heartbeats saved for replacements."""
    stand_in: bytes = b""
    """Certified key of the neighbour that replaces the relay during a mass failure, once it is chosen."""


class NeighbourRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The only record of a neighbourhood."""

    anchors: list[str] = []
    relay: RelayRecord | None = None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def read_neighbour_record(data: bytes) -> NeighbourRecord:
    """A record of an earlier run. A record from before first relays were stored is a list of anchors alone."""
    try:
        return _DECODER.decode(data)
    except TamperedError:
        return NeighbourRecord(_OLD_DECODER.decode(data))


_DAMAGED: Final = "the record of neighbours is damaged"
_DECODER: Final = MsgpackDecoder(NeighbourRecord, TamperedError, _DAMAGED)
_OLD_DECODER: Final = MsgpackDecoder(list[str], TamperedError, _DAMAGED)

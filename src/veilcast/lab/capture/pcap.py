"""The format pcap: a header of 24 bytes, then packets, each with a header of 16: time, bytes kept, bytes on the wire.

The first four bytes tell the byte order, and whether times count micro- or nanoseconds. There is no marker between
records: after one wrong length everything is lost. So a length that no capture tool writes ends the walk.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from veilcast.errors import TamperedError
from veilcast.lab.capture.layout import ABSURD, REACHED, SHORT, Column, Interface, Layout, Octets, Packets, Word
from veilcast.lab.models.numba_cache import jit


class PcapWalker:
    """A `Walker`; the first bytes that it gets must begin with the file's header."""

    def __init__(self, data: Octets) -> None:
        if len(data) < HEADER:
            raise TamperedError("its header is cut")
        head = data[:HEADER].tobytes()
        big, exponent = MAGICS[head[:4]]
        link = int.from_bytes(head[20:24], "big" if big else "little") & _LINK_TYPE
        self.layout = Layout("pcap", big, (Interface(link, exponent),))
        self.begin = HEADER

    def walk(self, data: Octets, at: int, stop: int) -> tuple[int, int, int]:
        return _hop(data, at, stop, self.layout.big)

    def damage(self) -> str:
        return f"a packet of more than {KEPT_MAX:,} bytes"


def locate(data: Octets, start: int, end: int, count: int, layout: Layout) -> Packets:
    """The packets of a span, of which there are `count`."""
    columns = Packets(*(np.zeros(count, np.int64) for _ in range(6)))
    (interface,) = layout.interfaces
    nano = interface.exponent == _NANO
    _locate(data, start, end, layout.big, nano, columns.at, columns.kept, columns.length, columns.t_us)
    columns.link[:] = interface.link
    return columns


@jit
def _u32(data: Octets, at: Word, big: bool) -> Word:
    a, b, c, d = np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2]), np.int64(data[at + 3])
    if big:
        return a << 24 | b << 16 | c << 8 | d
    return d << 24 | c << 16 | b << 8 | a


@jit
def _hop(data: Octets, at: Word, stop: Word, big: bool) -> tuple[int, int, int]:
    packets, size = 0, len(data)
    while at < stop:
        if at + 16 > size:
            return at, packets, SHORT
        kept = _u32(data, at + 8, big)
        if kept > KEPT_MAX:
            return at, packets, ABSURD
        if at + 16 + kept > size:
            return at, packets, SHORT
        at += 16 + kept
        packets += 1
    return at, packets, REACHED


@jit
def _locate(
    data: Octets, at: Word, end: Word, big: bool, nano: bool, where: Column, kept: Column, length: Column, t_us: Column
) -> None:
    # Check lengths again: the file may have changed.
    for i in range(len(where)):
        if at + 16 > end:
            break
        seconds, fraction, held = _u32(data, at, big), _u32(data, at + 4, big), _u32(data, at + 8, big)
        if at + 16 + held > end:
            break
        where[i] = at + 16
        kept[i] = held
        length[i] = _u32(data, at + 12, big)
        t_us[i] = seconds * 1_000_000 + (fraction // 1000 if nano else fraction)
        at += 16 + held


_NANO: Final = 9
MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": (False, 6),
    b"\xa1\xb2\xc3\xd4": (True, 6),
    b"\x4d\x3c\xb2\xa1": (False, _NANO),
    b"\xa1\xb2\x3c\x4d": (True, _NANO),
}
"""The first bytes of a file: whether numbers are big-endian, and the exponent of a tick."""
HEADER: Final = 24
KEPT_MAX: Final = 262_144
"""Most bytes that capture tools keep of a packet."""
_LINK_TYPE: Final = 0xFFFF
"""The higher bits give the length of a checksum at the end of each packet, which is not needed here."""

"""The format pcapng: a chain of blocks, each with its kind before it and its length before and after it.

A section begins with a block that tells the byte order of all blocks up to the next section. It describes interfaces,
each with a link type and a time resolution; packets name their interface by its number. Blocks of other kinds
(statistics, names, secrets) are skipped. A simple packet has no time and belongs to the first interface.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import TamperedError
from veilcast.lab.capture.layout import (
    ABSURD,
    REACHED,
    SECONDS_MAX,
    SHORT,
    Column,
    Interface,
    Layout,
    Octets,
    Packets,
    Word,
)
from veilcast.lab.models.numba_cache import jit


class PcapngWalker:
    """A `Walker`; the first bytes that it gets must begin with a section."""

    def __init__(self, data: Octets) -> None:
        if len(data) < _SECTION_MIN:
            raise TamperedError("its header is cut")
        self.layout = Layout("pcapng", _is_big(data, 0))
        self.begin = 0
        self._sections = self._interfaces = 0
        self._damage = ""

    def walk(self, data: Octets, at: int, stop: int) -> tuple[int, int, int]:
        packets, found = 0, _SECTION if data[at : at + 4].tobytes() == SECTION_KIND else REACHED
        while True:
            if packets and found in (_SECTION, _INTERFACE):
                # This block does not apply to the packets before it.
                return at, packets, REACHED
            if found == _SECTION:
                found = self._enter(data, at)
            elif found == _INTERFACE:
                found = self._describe(data, at)
            if found in (SHORT, ABSURD):
                return at, packets, found
            if found == _READ:
                at += _u32(data, at + 4, self.layout.big)
            at, passed, found = _hop(data, at, stop, self.layout.big)
            packets += passed
            if found == REACHED:
                return at, packets, found

    def damage(self) -> str:
        return self._damage or "a block whose length cannot be"

    def _enter(self, data: Octets, at: int) -> int:
        if at + _SECTION_MIN > len(data):
            return SHORT
        self._sections += 1
        if self._sections > SECTIONS_MAX:
            self._damage = f"more than {SECTIONS_MAX:,} sections"
            return ABSURD
        try:
            self.layout = Layout("pcapng", _is_big(data, at))
        except TamperedError as error:
            self._damage = str(error)
            return ABSURD
        found = _examine(data, at, self.layout.big)
        return _READ if found == REACHED else found

    def _describe(self, data: Octets, at: int) -> int:
        layout = self.layout
        self._interfaces += 1
        if self._interfaces > INTERFACES_MAX:
            self._damage = f"more than {INTERFACES_MAX:,} interfaces"
            return ABSURD
        length = _u32(data, at + 4, layout.big)
        try:
            described = _interface(data[at + 8 : at + length - 4].tobytes(), layout.big)
        except ValueError as error:
            self._damage = f"an interface with {error}"
            return ABSURD
        self.layout = Layout("pcapng", layout.big, (*layout.interfaces, described))
        return _READ


def locate(data: Octets, start: int, end: int, count: int, layout: Layout) -> Packets:
    """The packets of a span, of which there are `count`."""
    columns = Packets(*(np.zeros(count, np.int64) for _ in range(6)))
    rows = [
        (each.link, -each.exponent if each.binary else each.exponent, each.offset_s, each.snap)
        for each in layout.interfaces
    ]
    interfaces = np.array(rows, np.int64).reshape(-1, 4)
    _locate(
        data,
        start,
        end,
        layout.big,
        interfaces,
        columns.at,
        columns.kept,
        columns.length,
        columns.t_us,
        columns.link,
        columns.interface,
    )
    return columns


def _is_big(data: Octets, at: int) -> bool:
    magic = data[at + 8 : at + 12].tobytes()
    if magic not in _MAGICS:
        raise TamperedError("a section without a byte order")
    return _MAGICS[magic]


def _interface(body: bytes, big: bool) -> Interface:
    """Raises `ValueError` with the reason."""
    order: Final = "big" if big else "little"
    if len(body) < 8:
        raise ValueError("too short a description")
    exponent, binary, offset_s, at = 6, False, 0, 8
    while at + 4 <= len(body):
        code, size = int.from_bytes(body[at : at + 2], order), int.from_bytes(body[at + 2 : at + 4], order)
        value = body[at + 4 : at + 4 + size]
        if len(value) < size:
            raise ValueError("an option that is cut")
        if code == _END:
            break
        if code == _RESOLUTION and size == 1:
            exponent, binary = value[0] & 0x7F, value[0] > 0x7F
        elif code == _OFFSET and size == 8:
            offset_s = int.from_bytes(value, order, signed=True)
        at += 4 + size + -size % 4
    link, snap = int.from_bytes(body[:2], order), int.from_bytes(body[4:8], order)
    return Interface(link, exponent, binary, offset_s, snap)


@jit
def _u32(data: Octets, at: Word, big: bool) -> Word:
    a, b, c, d = np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2]), np.int64(data[at + 3])
    if big:
        return a << 24 | b << 16 | c << 8 | d
    return d << 24 | c << 16 | b << 8 | a


@jit
def _examine(data: Octets, at: Word, big: bool) -> int:
    """Whether a whole block lies here, with the same length at both ends."""
    size = len(data)
    if at + 12 > size:
        return SHORT
    length = _u32(data, at + 4, big)
    if length < 12 or length % 4 or length > BLOCK_MAX:
        return ABSURD
    if at + length > size:
        return SHORT
    return REACHED if _u32(data, at + length - 4, big) == length else ABSURD


@jit
def _hop(data: Octets, at: Word, stop: Word, big: bool) -> tuple[int, int, int]:
    packets = 0
    while at < stop:
        if at + 4 <= len(data) and _u32(data, at, big) == _SECTION_HEADER:
            return at, packets, _SECTION
        found = _examine(data, at, big)
        if found != REACHED:
            return at, packets, found
        kind = _u32(data, at, big)
        if kind == _DESCRIPTION:
            return at, packets, _INTERFACE
        if kind in (_ENHANCED, _SIMPLE, _OBSOLETE):
            packets += 1
        at += _u32(data, at + 4, big)
    return at, packets, REACHED


@jit
def _locate(
    data: Octets,
    at: Word,
    end: Word,
    big: bool,
    interfaces: NDArray[np.int64],
    where: Column,
    kept: Column,
    length: Column,
    t_us: Column,
    link: Column,
    number: Column,
) -> None:
    # Check lengths again: the file may have changed.
    i = 0
    while at + 12 <= end and i < len(where):
        kind, size = _u32(data, at, big), _u32(data, at + 4, big)
        if size < 12 or at + size > end:
            break
        if kind == _SIMPLE and size >= 16:
            length[i] = _u32(data, at + 8, big)
            where[i], kept[i], link[i] = at + 12, min(length[i], size - 16), -1
            if len(interfaces):
                link[i] = interfaces[0, 0]
                if interfaces[0, 3]:
                    kept[i] = min(kept[i], interfaces[0, 3])
            i += 1
        elif kind in (_ENHANCED, _OBSOLETE) and size >= 32:
            name = _u32(data, at + 8, big)
            if kind == _OBSOLETE:
                # Half of the field counts packets that were lost.
                name = name >> 16 if big else name & 0xFFFF
            where[i], kept[i] = at + 28, min(_u32(data, at + 20, big), size - 32)
            length[i], number[i], link[i] = _u32(data, at + 24, big), name, -1
            if name < len(interfaces):
                link[i] = interfaces[name, 0]
                ticks = np.uint64(_u32(data, at + 12, big)) << np.uint64(32) | np.uint64(_u32(data, at + 16, big))
                t_us[i] = _microseconds(ticks, interfaces[name, 1], interfaces[name, 2])
            i += 1
        elif kind in (_ENHANCED, _SIMPLE, _OBSOLETE):
            link[i] = -1
            i += 1
        at += size


@jit
def _microseconds(ticks: Word, exponent: Word, offset_s: Word) -> Word:
    """Convert ticks of 10^-exponent seconds, or 2^exponent if that is negative; -1 if the time is invalid."""
    if exponent < 0:
        shift = np.uint64(-exponent)
        seconds = ticks >> shift
        fraction = ticks - (seconds << shift)
        # 43 bits of a fraction, times a million, fit 64 bits.
        if shift > np.uint64(43):
            fraction >>= shift - np.uint64(43)
            shift = np.uint64(43)
        micro = fraction * np.uint64(1_000_000) >> shift
    else:
        per_second = np.uint64(1)
        for _ in range(min(exponent, 19)):
            per_second *= np.uint64(10)
        seconds = ticks // per_second
        fraction = ticks - seconds * per_second
        if exponent > 19:
            # 64 bits hold less than a second of such ticks.
            seconds, fraction = np.uint64(0), ticks
        for _ in range(6, exponent):
            fraction //= np.uint64(10)
        for _ in range(exponent, 6):
            fraction *= np.uint64(10)
        micro = fraction
    if seconds > np.uint64(SECONDS_MAX):
        return np.int64(-1)
    whole = np.int64(seconds) + offset_s
    if whole < 0:
        return np.int64(-1)
    return whole * 1_000_000 + np.int64(micro)


SECTION_KIND: Final = b"\x0a\x0d\x0d\x0a"
"""The first bytes of a file, in either byte order."""
_MAGICS: Final = {b"\x1a\x2b\x3c\x4d": True, b"\x4d\x3c\x2b\x1a": False}
_SECTION_MIN: Final = 28
_SECTION_HEADER: Final = 0x0A0D0D0A
_DESCRIPTION: Final = 1
_OBSOLETE: Final = 2
_SIMPLE: Final = 3
_ENHANCED: Final = 6
_SECTION: Final = 3
_INTERFACE: Final = 4
_READ: Final = 5
"""Results of a walk, beside the reasons to end it: a section, an interface; and that it was read."""

_END: Final = 0
_RESOLUTION: Final = 9
_OFFSET: Final = 14
"""Options of an interface."""

BLOCK_MAX: Final = 1 << 24
INTERFACES_MAX: Final = 1024
SECTIONS_MAX: Final = 1024
"""Largest number in one file."""

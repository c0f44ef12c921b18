"""The visible part of a packet: its two ends and its size; and a mark by which it is recognised.

From the outside in: the link (Ethernet with VLAN tags, Linux cooked, BSD loopback, bare IP), IPv4 or IPv6 with its
extension headers, then UDP or TCP. Sizes are those that the headers state, so a capture may hold only the beginning of
each packet. Nothing is guessed: a packet that is not a whole readable datagram or segment is counted under the reason
why it is left out.

A fragment tells ports and length in its first piece only. The first piece of a UDP datagram counts as the datagram,
because its header has the whole length; later pieces are counted.

The mark is a hash of what stays the same on the way: both ends, the length, and the first bytes of the content (with
the sequence number of a TCP segment). The checksum is not in it: a network card often fills that in after the capture
has seen the packet.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.capture.layout import Column, Octets, Packets, Word
from veilcast.lab.models.numba_cache import jit


class Dissected(msgspec.Struct, frozen=True):
    """Packets as the wire shows them, in columns."""

    reason: Column
    """One of the reasons below."""
    ends: NDArray[np.uint64]
    """Source and destination, three words each: the address in two, and the port with the version of IP above it."""
    size: Column
    mark: Column
    """0 if too little of the packet was kept."""
    point: Column
    """Place in its capture: a number for each interface and direction."""


def dissect(data: Octets, packets: Packets) -> Dissected:
    count = len(packets.at)
    found = Dissected(
        np.zeros(count, np.int64),
        np.zeros((count, 6), np.uint64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        packets.interface << 20,
    )
    _dissect(
        data,
        packets.at,
        packets.kept,
        packets.length,
        packets.t_us,
        packets.link,
        found.reason,
        found.ends,
        found.size,
        found.mark,
        found.point,
    )
    return found


@jit
def _dissect(
    data: Octets,
    starts: Column,
    kept: Column,
    lengths: Column,
    times: Column,
    links: Column,
    reasons: Column,
    ends: NDArray[np.uint64],
    sizes: Column,
    marks: Column,
    points: Column,
) -> None:
    for i in range(len(starts)):
        begin = starts[i]
        end = min(begin + kept[i], len(data))
        reason, version, at, point = _open_link(data, begin, end, links[i])
        points[i] += point
        if reason == CELL:
            # Bytes after the link's header on the wire, whatever the IP header says.
            rest = begin + lengths[i] - at
            reason, protocol, at, rest = _open_ip(data, at, end, version, rest, ends[i])
            if reason <= FIRST_FRAGMENT:
                reason, sizes[i], marks[i] = _open_transport(data, at, end, protocol, rest, reason, ends[i])
        if times[i] < 0 and reason <= FIRST_FRAGMENT:
            reason = MISTIMED
        reasons[i] = reason


@jit
def _open_link(data: Octets, at: Word, end: Word, link: Word) -> tuple[int, Word, Word, Word]:
    """The reason to leave it out, or the version of IP, where it begins, and the place in a cooked capture."""
    point: Word = 0
    kind: Word = 0
    version: Word = 0
    if link == ETHERNET:
        if at + 14 > end:
            return CUT, version, at, point
        kind, at = _u16(data, at + 12), at + 14
    elif link == COOKED:
        if at + 16 > end:
            return CUT, version, at, point
        point = np.int64(_u16(data, at) == _OUTGOING)
        kind, at = _u16(data, at + 14), at + 16
    elif link == COOKED_2:
        if at + 20 > end:
            return CUT, version, at, point
        device = np.int64(_u32(data, at + 4) & 0x7FFFF)
        point = device << 1 | np.int64(data[at + 10] == _OUTGOING)
        kind, at = _u16(data, at), at + 20
    elif link in (NULL, LOOP):
        if at + 4 > end:
            return CUT, version, at, point
        # In the byte order of the machine that wrote it; a family is a small number.
        family = _u32(data, at)
        if family > 0xFFFF:
            family = np.int64(data[at]) | np.int64(data[at + 1]) << 8
        version = 4 if family == 2 else 6 if family in (10, 24, 28, 30) else 0
        return CELL if version else NOT_IP, version, at + 4, point
    elif link in (RAW, RAW_BSD, RAW_OPENBSD, RAW_4, RAW_6):
        if at + 1 > end:
            return CUT, version, at, point
        version = np.int64(data[at] >> 4)
        return (CELL if version == 4 or version == 6 else NOT_IP), version, at, point
    else:
        return UNKNOWN_LINK, 0, at, point
    for _ in range(TAGS_MAX):
        if kind not in (0x8100, 0x88A8, 0x9100):
            break
        if at + 4 > end:
            return CUT, version, at, point
        kind, at = _u16(data, at + 2), at + 4
    version = 4 if kind == 0x0800 else 6 if kind == 0x86DD else 0
    return (CELL if version else NOT_IP), version, at, point


@jit
def _open_ip(
    data: Octets, at: Word, end: Word, version: Word, rest: Word, ends: NDArray[np.uint64]
) -> tuple[int, Word, Word, Word]:
    """The reason to leave it out, or the protocol inside, where it begins, and its length; fills in the addresses."""
    if version == 4:
        if at + 20 > end:
            return CUT, 0, at, rest
        header = np.int64(data[at] & 15) * 4
        total = _u16(data, at + 2)
        if total == 0:
            # A segment that the network card has yet to split.
            total = rest
        if data[at] >> 4 != 4 or header < 20 or total < header:
            return MALFORMED, 0, at, rest
        piece = _u16(data, at + 6)
        if piece & 0x1FFF:
            return LATER_FRAGMENT, 0, at, rest
        ends[1], ends[4] = np.uint64(_u32(data, at + 12)), np.uint64(_u32(data, at + 16))
        ends[2] = ends[5] = np.uint64(4 << 16)
        return (FIRST_FRAGMENT if piece & 0x2000 else CELL), np.int64(data[at + 9]), at + header, total - header
    if at + 40 > end:
        return CUT, 0, at, rest
    if data[at] >> 4 != 6:
        return MALFORMED, 0, at, rest
    total = _u16(data, at + 4)
    rest = total if total else rest - 40
    protocol, reason = np.int64(data[at + 6]), CELL
    for word in range(2):
        ends[word] = _u64(data, at + 8 + 8 * word)
        ends[3 + word] = _u64(data, at + 24 + 8 * word)
    ends[2] = ends[5] = np.uint64(6 << 16)
    at += 40
    for _ in range(EXTENSIONS_MAX):
        if protocol not in (0, 43, 44, 51, 60, 135, 139, 140):
            break
        if at + 8 > end:
            return CUT, 0, at, rest
        length: Word = (np.int64(data[at + 1]) + 1) * 8
        if protocol == 44:
            length = 8
            piece = _u16(data, at + 2)
            if piece & 0xFFF8:
                return LATER_FRAGMENT, 0, at, rest
            if piece & 1:
                reason = FIRST_FRAGMENT
        elif protocol == 51:
            length = (np.int64(data[at + 1]) + 2) * 4
        protocol, at, rest = np.int64(data[at]), at + length, rest - length
    return reason, protocol, at, rest


@jit
def _open_transport(
    data: Octets, at: Word, end: Word, protocol: Word, rest: Word, reason: int, ends: NDArray[np.uint64]
) -> tuple[int, Word, Word]:
    """The reason to leave it out, or the length of the content, and the mark; fills in the ports."""
    number = np.uint64(protocol)
    if protocol == UDP:
        if at + 8 > end:
            return CUT, 0, 0
        length = _u16(data, at + 4)
        if length < 8 or (length > rest and reason == CELL):
            return MALFORMED, 0, 0
        size, content = length - 8, at + 8
    elif protocol == TCP:
        if reason == FIRST_FRAGMENT:
            return TCP_FRAGMENT, 0, 0
        if at + 20 > end:
            return CUT, 0, 0
        header = np.int64(data[at + 12] >> 4) * 4
        size, content = rest - header, at + header
        if header < 20 or size < 0:
            return MALFORMED, 0, 0
        if size == 0:
            return BARE, 0, 0
        number |= np.uint64(_u32(data, at + 4)) << np.uint64(8)
    else:
        return OTHER_PROTOCOL, 0, 0
    ends[2] |= np.uint64(_u16(data, at))
    ends[5] |= np.uint64(_u16(data, at + 2))
    begun = min(size, MARKED)
    if content + begun > end:
        return reason, size, 0
    state = _mix(_mix(np.uint64(size), number), np.uint64(begun))
    for i in range(6):
        state = _mix(state, ends[i])
    for start in range(content, content + begun, 8):
        word = np.uint64(0)
        for byte in range(start, min(start + 8, content + begun)):
            word = word << np.uint64(8) | np.uint64(data[byte])
        state = _mix(state, word)
    return reason, size, np.int64(state >> np.uint64(1)) | 1


@jit
def _mix(state: Word, word: Word) -> Word:
    mixed = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


@jit
def _u16(data: Octets, at: Word) -> Word:
    return np.int64(data[at]) << 8 | np.int64(data[at + 1])


@jit
def _u32(data: Octets, at: Word) -> Word:
    return _u16(data, at) << 16 | _u16(data, at + 2)


@jit
def _u64(data: Octets, at: Word) -> Word:
    return np.uint64(_u32(data, at)) << np.uint64(32) | np.uint64(_u32(data, at + 4))


CELL: Final = 0
FIRST_FRAGMENT: Final = 1
"""This reason and all below it are cells."""
LATER_FRAGMENT: Final = 2
TCP_FRAGMENT: Final = 3
BARE: Final = 4
NOT_IP: Final = 5
OTHER_PROTOCOL: Final = 6
CUT: Final = 7
MALFORMED: Final = 8
UNKNOWN_LINK: Final = 9
MISTIMED: Final = 10
REASONS: Final = (
    "whole datagrams or segments",
    "first fragments of UDP datagrams, taken for the whole",
    "later fragments",
    "fragments of TCP segments",
    "TCP segments without content",
    "not IP",
    "neither UDP nor TCP",
    "cut before their headers end",
    "malformed",
    "of an interface or link type that is not known",
    "at a time that cannot be",
)

NULL: Final = 0
ETHERNET: Final = 1
RAW_BSD: Final = 12
RAW_OPENBSD: Final = 14
RAW: Final = 101
LOOP: Final = 108
COOKED: Final = 113
RAW_4: Final = 228
RAW_6: Final = 229
COOKED_2: Final = 276
LINKS: Final = frozenset((NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, LOOP, COOKED, RAW_4, RAW_6, COOKED_2))
"""The link types that are read, by their numbers in captures."""

TCP: Final = 6
UDP: Final = 17
TAGS_MAX: Final = 4
EXTENSIONS_MAX: Final = 16
MARKED: Final = 16
"""Bytes of the content in the mark. Our cells are ciphertext: this many bytes never repeat."""
_OUTGOING: Final = 4
"""In a cooked header: this machine sent the packet."""

"""Writes small captures, byte by byte, in every form that the reader knows."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veilcast.observe import CellRow

EPOCH_US = 10_000_000
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class SentPacket:
    """One datagram or segment, as it was on the wire."""

    t_us: int
    src: str = "192.0.2.1:4000"
    dst: str = "192.0.2.2:4001"
    content: bytes = b"x" * 1200
    protocol: int = 17
    number: int = 0

    def cell(self, run: str = "r") -> CellRow:
        return CellRow(run, self.t_us // EPOCH_US, self.t_us, self.src, self.dst, len(self.content))


def split(end: str) -> tuple[bytes, int]:
    host, _, port = end.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")).packed, int(port)


def transport(sent: SentPacket) -> bytes:
    (_, source), (_, destination) = split(sent.src), split(sent.dst)
    if sent.protocol == 17:
        return struct.pack("!HHHH", source, destination, 8 + len(sent.content), 0) + sent.content
    head = struct.pack("!HHIIBBHHH", source, destination, sent.number, 0, 6 << 4, 0x18, 512, 0, 0)
    return head + b"\1\1\1\1" + sent.content


def ip(sent: SentPacket, extensions: Sequence[tuple[int, bytes]] = (), piece: int = 0, options: bytes = b"") -> bytes:
    """`extensions` are those of IPv6, by number, with their bodies; `piece` is the field of fragments of IPv4."""
    source, destination = split(sent.src)[0], split(sent.dst)[0]
    inner = transport(sent)
    if len(source) == 4:
        length = 20 + len(options)
        head = struct.pack("!BBHHHBBH", 0x40 | length // 4, 0, length + len(inner), 7, piece, 64, sent.protocol, 0)
        return head + source + destination + options + inner
    kinds = [number for number, _ in extensions] + [sent.protocol]
    for follows, (_, body) in zip(reversed(kinds[1:]), reversed(extensions), strict=True):
        inner = bytes([follows]) + body + inner
    return struct.pack("!IHBB", 6 << 28, len(inner), kinds[0], 64) + source + destination + inner


def frame_packet(packet: bytes, link: int, *, tags: int = 0, outgoing: bool = False, big: bool = False) -> bytes:
    """The packet with the header of the link."""
    six = packet[0] >> 4 == 6
    kind = struct.pack("!H", 0x86DD if six else 0x0800)
    tagged = b"".join(b"\x81\x00\x00\x05" for _ in range(tags)) + kind
    if link == 1:
        return b"\2\0\0\0\0\1\2\0\0\0\0\2" + tagged + packet
    if link == 113:
        return struct.pack("!HHH8s", 4 if outgoing else 0, 1, 6, b"") + kind + packet
    if link == 276:
        return kind + struct.pack("!HIHBB8s", 0, 3, 1, 4 if outgoing else 0, 6, b"") + packet
    if link in (0, 108):
        return struct.pack(">I" if big or link == 108 else "<I", 30 if six else 2) + packet
    return packet


def pcap(
    packets: Sequence[tuple[int, bytes]], link: int = 1, *, big: bool = False, nano: bool = False, snap: int = 262_144
) -> bytes:
    """A pcap file of packets with their times in microseconds."""
    order = ">" if big else "<"
    parts = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)]
    for t_us, packet in packets:
        fraction = t_us % 1_000_000 * (1000 if nano else 1)
        kept = packet[:snap]
        parts += [struct.pack(order + "IIII", t_us // 1_000_000, fraction, len(kept), len(packet)), kept]
    return b"".join(parts)


class Pcapng:
    """Writes a pcapng file block by block."""

    def __init__(self, *, big: bool = False) -> None:
        self.bytes = b""
        self._order = ">" if big else "<"
        self._block(0x0A0D0D0A, self._pack("IHHq", 0x1A2B3C4D, 1, 0, -1))

    def section(self, *, big: bool) -> Pcapng:
        self._order = ">" if big else "<"
        self._block(0x0A0D0D0A, self._pack("IHHq", 0x1A2B3C4D, 1, 0, -1))
        return self

    def interface(self, link: int, resolution: int | None = None, offset_s: int | None = None, snap: int = 0) -> Pcapng:
        options = self._option(2, b"eth0")
        if resolution is not None:
            options += self._option(9, bytes([resolution]))
        if offset_s is not None:
            options += self._option(14, self._pack("q", offset_s))
        self._block(1, self._pack("HHI", link, 0, snap) + options + self._option(0, b""))
        return self

    def enhanced(self, interface: int, ticks: int, packet: bytes, kept: int = 1 << 20) -> Pcapng:
        held = packet[:kept]
        head = self._pack("IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(held), len(packet))
        self._block(6, head + held + bytes(-len(held) % 4) + self._option(0, b""))
        return self

    def obsolete(self, interface: int, ticks: int, packet: bytes) -> Pcapng:
        head = self._pack("HHIIII", interface, 9, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet))
        self._block(2, head + packet + bytes(-len(packet) % 4))
        return self

    def simple(self, packet: bytes) -> Pcapng:
        self._block(3, self._pack("I", len(packet)) + packet + bytes(-len(packet) % 4))
        return self

    def other(self, kind: int, body: bytes) -> Pcapng:
        self._block(kind, body + bytes(-len(body) % 4))
        return self

    def _block(self, kind: int, body: bytes) -> None:
        length = self._pack("I", 12 + len(body))
        self.bytes += self._pack("I", kind) + length + body + length

    def _option(self, code: int, value: bytes) -> bytes:
        return self._pack("HH", code, len(value)) + value + bytes(-len(value) % 4)

    def _pack(self, form: str, *values: int) -> bytes:
        return struct.pack(self._order + form, *values)


def write_file(directory: Path, data: bytes, name: str = "a.pcap") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path

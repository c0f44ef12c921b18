"""Targets: captures. pcap and pcapng with the kernels that dissect packets, gzip, and the lines of taps.

Numba does not compile here: only interpreted kernels check bounds.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import msgspec

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap
from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast import observe
from veilcast.errors import LocalError
from veilcast.lab.capture.reader import read

GROUP = Group()
SIX = SentPacket(START_US, "[2001:db8::1]:4000", "[2001:db8::2]:5", b"y" * 30)


def _check(name: str) -> object:
    path = Path(tempfile.mkdtemp(prefix="veilcast-fuzz-")) / name

    def check(data: bytes) -> object:
        path.write_bytes(data)
        table, notes = read([path], run="r", epoch_us=EPOCH_US)
        return table.num_rows, len(notes.files)

    return check


@GROUP.target(
    "pcap", "captures of any tool", "lab.capture.pcap:PcapWalker", "lab.capture.packets:dissect", interpreted=True
)
def pcaps() -> Prepared:
    short = SentPacket(START_US + 5, content=b"z" * 20)
    packets = [
        ip(short),
        ip(SIX),
        ip(SentPacket(START_US, content=b"t" * 9, protocol=6)),
        ip(SIX, [(0, bytes(7)), (43, bytes(7))]),
    ]
    examples = []
    for link in (1, 101, 113, 276, 0, 108):
        rows = [(START_US + at, frame_packet(packet, link, tags=at % 2)) for at, packet in enumerate(packets)]
        examples.append(pcap(rows, link, big=link == 0, nano=link == 113))
    examples.append(gzip.compress(examples[0], mtime=0))
    return Prepared(_check("a.pcap"), (LocalError,), examples, prefixes=(examples[0][:24],), max_len=1024)  # type: ignore[arg-type]


@GROUP.target("pcapng", "captures of any tool, the newer format", "lab.capture.pcapng:PcapngWalker", interpreted=True)
def pcapngs() -> Prepared:
    packet = frame_packet(ip(SentPacket(START_US, content=b"z" * 20)), 1)
    whole = Pcapng().interface(1, 6, 0).enhanced(0, START_US, packet).simple(packet).obsolete(0, START_US, packet)
    big = Pcapng(big=True).interface(1, 0x89, 5, 64).enhanced(0, START_US, packet).other(99, b"abc")
    two = Pcapng().interface(101).section(big=True).interface(1, 9).enhanced(0, START_US * 1000, packet)
    return Prepared(_check("a.pcapng"), (LocalError,), [whole.bytes, big.bytes, two.bytes], max_len=1024)  # type: ignore[arg-type]


@GROUP.target(
    "tap-lines", "cells that a node's tap or a simulation wrote", "lab.capture.taps:read_rows", interpreted=True
)
def tap_lines() -> Prepared:
    cells = [observe.CellRow("r", 1, START_US + at, "a:1", f"b:{at % 3}", 1200) for at in range(6)]
    lines = [msgspec.json.encode(msgspec.structs.astuple(cell)) for cell in cells]
    examples = [b"\n".join(lines) + b"\n", lines[0] + b"\n", lines[0]]
    return Prepared(_check("cells.jsonl"), (LocalError,), examples, Format.JSON)  # type: ignore[arg-type]

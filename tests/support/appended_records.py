"""Records of a few nodes, in the forms in which running programs append them: captures and taps."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from support.capture_files import START_US, SentPacket, frame_packet, ip, pcap
from veilcast.observe import CellRow

NODES = [f"192.0.2.{number}:4000" for number in range(1, 5)]
Rows = list[tuple[object, ...]]


def traffic(count: int, seed: int = 1) -> list[SentPacket]:
    rng, found = random.Random(seed), []
    for number in range(count):
        src, dst = rng.sample(NODES, 2)
        found.append(SentPacket(START_US + 1000 * number, src, dst, rng.randbytes(rng.randrange(40, 300))))
    return found


def packed(sent: Sequence[SentPacket], link: int = 1) -> bytes:
    return pcap([(one.t_us, frame_packet(ip(one), link)) for one in sent], link)


def lines(cells: Sequence[CellRow]) -> bytes:
    return b"".join(msgspec.json.encode(msgspec.structs.astuple(cell)) + b"\n" for cell in cells)


def tap_of(own: str, sent: Sequence[SentPacket], way_us: int = 300) -> bytes:
    cells = [one.cell() for one in sent if own in (one.src, one.dst)]
    times = [cell.t_us + (way_us if cell.dst == own else 0) for cell in cells]
    return lines([msgspec.structs.replace(cell, t_us=t_us) for cell, t_us in zip(cells, times, strict=True)])


def expected(sent: Sequence[SentPacket]) -> Rows:
    return [msgspec.structs.astuple(one.cell()) for one in sent]

"""How quickly do captures become rows of `cells`, beside a loop over the same bytes in plain Python?

A capture of ten million packets is tiled from one of a hundred thousand: UDP over Ethernet between 400 ends, IPv4 and
IPv6, cells of 1,200 bytes of which 96 bytes each were kept. Ours makes the whole Arrow table, addresses as text
included, in one thread; so does the loop (`struct`, one packet at a time), of which as many packets are measured as it
does in some seconds. Beside it stand the quick pass that only cuts a file into spans, and the same reading where two
captures of the same packets are folded into one. Seconds are those of the processor, for everything here has one
thread. Takes about a minute:

    python benchmarks/capture.py [--packets N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from veilcast.lab import capture, tables
from veilcast.lab.capture import file_spans
from veilcast.observe import CellRow

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.capture_files import START_US, SentPacket, frame_packet, ip, pcap


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=10_000_000, help="in the capture (10,000,000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    found = measure(max(TILE, options.packets // TILE * TILE))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['packets']:,} packets in {found['bytes'] / 1e9:.2f} GB")
    print(f"{'':<34}{'packets':>12}{'s':>8}{'packets/s':>14}{'ratio':>8}")
    floor = found["rows"]["plain Python"]["rate"]
    for name, row in found["rows"].items():
        figures = f"{row['packets']:>12,}{row['seconds']:>8.2f}{row['rate']:>14,.0f}{row['rate'] / floor:>8.1f}"
        print(f"  {name:<32}{figures}")
    print(f"peak memory {found['peak_mib']:,} MiB")


def measure(packets: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        one, first, second = (Path(directory) / name for name in ("tile", "first", "second"))
        tile = pcap([(sent.t_us, frame_packet(ip(sent), 1)) for sent in traffic()], snap=KEPT)
        one.write_bytes(tile)
        write(first, tile, packets)
        # Compiled before it is measured; and checked: both make the same rows.
        table = read(one)
        assert table.equals(tables.from_rows(CellRow, plainly(one)))
        rows = {
            "cut into spans": measure_rate(
                lambda: sum(span.packets for span in file_spans.cut_spans(first, 0, file_spans.STEP)[0])
            ),
            "read": measure_rate(lambda: len(read(first))),
            "plain Python": measure_rate(lambda: len(tables.from_rows(CellRow, islice(plainly(first), PLAIN)))),
        }
        assert rows["read"]["packets"] == packets
        write(first, tile, packets // 10)
        write(second, tile, packets // 10)
        read(one, second)
        rows["read twice, folded into one"] = measure_rate(lambda: 2 * len(read(first, second)))
        assert rows["read twice, folded into one"]["packets"] == packets // 10 * 2
        return {
            "packets": packets,
            "bytes": len(tile) * (packets // TILE),
            "rows": rows,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }


def measure_rate(work: Callable[[], int]) -> dict[str, float]:
    begun = time.process_time()
    packets = work()
    seconds = time.process_time() - begun
    return {"packets": packets, "seconds": seconds, "rate": packets / seconds}


def read(*paths: Path) -> pa.Table:
    return capture.read(paths, run="r", epoch_us=EPOCH_US)[0]


def plainly(path: Path) -> Iterator[CellRow]:
    """The same, one packet at a time, of a capture of which it is known that it is whole and has nothing else."""
    with path.open("rb") as file:
        file.read(24)
        while head := file.read(16):
            seconds, fraction, kept, _ = struct.unpack("<IIII", head)
            packet = file.read(kept)
            (kind,) = struct.unpack_from("!H", packet, 12)
            if kind == 0x0800:
                at = 14 + (packet[14] & 15) * 4
                source, destination = (socket.inet_ntop(socket.AF_INET, packet[i : i + 4]) for i in (26, 30))
            else:
                at = 14 + 40
                source, destination = (f"[{socket.inet_ntop(socket.AF_INET6, packet[i : i + 16])}]" for i in (22, 38))
            ports = struct.unpack_from("!HHH", packet, at)
            t_us = seconds * 1_000_000 + fraction
            ends = f"{source}:{ports[0]}", f"{destination}:{ports[1]}"
            yield CellRow("r", t_us // EPOCH_US, t_us, *ends, ports[2] - 8)


def traffic() -> Iterator[SentPacket]:
    rng = random.Random(1)
    four = [f"10.0.{number // 100}.{number % 100}:{4000 + number % 7}" for number in range(200)]
    six = [f"[2001:db8::{number:x}]:4000" for number in range(1, 201)]
    for number in range(TILE):
        src, dst = rng.sample(four if number % 2 else six, 2)
        yield SentPacket(START_US + 10 * number, src, dst, rng.randbytes(64) + bytes(1136))


def write(path: Path, tile: bytes, packets: int) -> None:
    """The same packets, again and again."""
    with path.open("wb") as file:
        file.write(tile[:24])
        for _ in range(packets // TILE):
            file.write(tile[24:])


TILE = 100_000
PLAIN = 1_000_000
KEPT = 96
EPOCH_US = 3_600_000_000

if __name__ == "__main__":
    main()

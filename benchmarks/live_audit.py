"""How far behind is a live audit at 100,000 packets a second, and does its state stay the same size?

A writer appends packets to a capture in real time, as tcpdump does: cells of 1,200 bytes, of which 74 bytes each are
kept, on 10,000 links each way of 500 nodes, ten cells a second on each, at a phase of the link with 2 ms of jitter. The
audit follows the file. For each report stands its lag: the age of the oldest packet that it is the first to count, when
it is there. Beside it stand the rows of the state, and the memory of this process and of Java. The first reports are
shown and not judged: Java, numba and workers start, and for ten seconds cells are kept one by one. Takes two minutes:

    python benchmarks/live_audit.py [--rate N] [--seconds N] [--every SECONDS] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from veilcast.lab.audit import live_audit
from veilcast.lab.audit.live_audit import LiveReport, LiveSettings
from veilcast.lab.spark import LOCAL, session

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.capture_files import SentPacket, frame_packet, ip, pcap

sys.path.insert(0, str(Path(__file__).parent))
from measurement.process_tree import process_tree, processor_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=100_000, help="packets a second (100,000)")
    parser.add_argument("--seconds", type=int, default=90, help="for which packets are written (90)")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two reports (5)")
    parser.add_argument("--master", default=LOCAL, help=f"where Spark runs ({LOCAL})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    say = print if not options.json else (lambda *_: None)
    say(f"{'packets':>12}{'s':>8}{'lag, s':>8}{'rows':>12}{'Python, MiB':>13}{'Java, MiB':>11}{'load':>7}")
    found = measure(options.rate, options.seconds, options.every, options.master, say)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"largest lag after {SETTLED_S} s: {found['lag_s']:.1f} s; processor {found['processor_share']:.2f} of a core; "
        f"rows {found['rows_change']:+.1%}, memory {found['memory_change']:+.1%} from {SETTLED_S} s on to the end"
    )


def measure(rate: int, seconds: int, every_s: float, master: str, say: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, session(master) as spark:
        capture = Path(directory) / "wire.pcap"
        # Java, numba and Python's workers start before the first packet.
        capture.write_bytes(packets_header())
        warm(spark, Path(directory))
        begin_us = time.time_ns() // 1000
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(capture, rate, seconds, begin_us))
        rows: list[dict[str, float]] = []
        reported_us, total, before = begin_us, rate * seconds, processor_seconds(os.getpid())

        def emit(report: LiveReport) -> None:
            nonlocal reported_us
            now_us = time.time_ns() // 1000
            python, java = memory_mib()
            row = {
                "packets": report.cells,
                "at_s": (now_us - begin_us) / 1e6,
                "lag_s": (now_us - reported_us) / 1e6,
                "rows": report.state_rows,
                "python_mib": python,
                "java_mib": java,
                "load": os.getloadavg()[0],
            }
            rows.append(row)
            reported_us = report.last_us
            figures = f"{row['lag_s']:>8.1f}{report.state_rows:>12,}{python:>13,.0f}{java:>11,.0f}{row['load']:>7.1f}"
            say(f"{report.cells:>12,}{row['at_s']:>8.1f}{figures}")
            if report.cells >= total:
                # As Ctrl-C does, so the end is the same.
                os.kill(os.getpid(), signal.SIGINT)

        writer.start()
        settings = LiveSettings(window_us=0, every_s=every_s)
        with contextlib.suppress(KeyboardInterrupt):
            live_audit.follow(spark, [capture], settings, emit)
        spent = processor_seconds(os.getpid()) - before
        writer.join()
    later = [row for row in rows if row["at_s"] > SETTLED_S] or rows
    first, last = later[0], later[-1]
    whole = [row["python_mib"] + row["java_mib"] for row in (first, last)]
    return {
        "rate": rate,
        "seconds": seconds,
        "lag_s": max(row["lag_s"] for row in later),
        "processor_share": spent / last["at_s"],
        "rows_change": last["rows"] / first["rows"] - 1,
        "memory_change": whole[1] / whole[0] - 1,
        "reports": rows,
    }


def warm(spark: Any, directory: Path) -> None:
    """A small audit, of which nothing is measured."""
    place = directory / "warm.pcap"
    write_at_once(place, 4_200, 12)
    live_audit.follow(spark, [place], LiveSettings(window_us=0), lambda _: None, once=True)


def write(place: Path, rate: int, seconds: int, begin_us: int) -> None:
    """Append the packets of each period when it is over."""
    with place.open("ab", buffering=0) as file:
        for end_us, data in periods(rate, seconds, begin_us):
            time.sleep(max(0.0, end_us / 1e6 - time.time()))
            file.write(data)


def write_at_once(place: Path, rate: int, seconds: int, begin_us: int = 1_700_000_000_000_000) -> None:
    with place.open("wb") as file:
        file.write(packets_header())
        for _, data in periods(rate, seconds, begin_us):
            file.write(data)


def packets_header() -> bytes:
    return pcap([])


def periods(rate: int, seconds: int, begin_us: int) -> Iterator[tuple[int, bytes]]:
    """The end of each period, and its packets: one on each link, at the link's phase."""
    links = rate // CELLS_EACH
    rng = np.random.default_rng(1)
    records = np.frombuffer(pcap(_link_packets(links), snap=KEPT)[24:], _RECORD).copy()
    period_us = 1_000_000 // CELLS_EACH
    phase = np.sort(rng.integers(0, period_us - JITTER_US, links))
    for number in range(seconds * CELLS_EACH):
        since = begin_us + number * period_us
        t_us = since + phase + rng.integers(0, JITTER_US, links)
        order = np.argsort(t_us, kind="stable")
        sent = records[order]
        sent["s"], sent["us"] = np.divmod(t_us[order], 1_000_000)
        yield since + period_us, sent.tobytes()


def _link_packets(links: int) -> list[tuple[int, bytes]]:
    """A packet for each link of a ring in which every node has `NEIGHBOURS` neighbours: a quarter as many nodes on
    each side."""
    nodes = max(NEIGHBOURS + 1, links // NEIGHBOURS)
    ends = [f"10.0.{number // 250}.{1 + number % 250}:4000" for number in range(nodes)]
    found = []
    for number in range(links):
        src, step = number // NEIGHBOURS % nodes, number % NEIGHBOURS
        away = step // 2 + 1
        dst = (src + (away if step % 2 else -away)) % nodes
        found.append((0, frame_packet(ip(SentPacket(0, ends[src], ends[dst])), 1)))
    return found


def memory_mib() -> tuple[float, float]:
    """Memory of this process, and of its Java machine with Python's workers."""
    page = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    own, *others = (int(Path(f"/proc/{each}/statm").read_text().split()[1]) * page for each in _living(os.getpid()))
    return own, sum(others)


def _living(root: int) -> list[int]:
    return [each for each in process_tree(root) if Path(f"/proc/{each}/statm").exists()]


CELLS_EACH: Final = 10
"""Cells a second on each link, each way."""
NEIGHBOURS: Final = 20
JITTER_US: Final = 2_000
KEPT: Final = 74
SETTLED_S: Final = 30
_RECORD: Final = np.dtype([("s", "<u4"), ("us", "<u4"), ("kept", "<u4"), ("length", "<u4"), ("data", f"V{KEPT}")])

if __name__ == "__main__":
    main()

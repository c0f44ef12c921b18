"""A live network, recorded twice: by the taps of its nodes, and by `tcpdump` on loopback. Both tell the same cells."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from support.waits import HANG_S, wait_until
from veilcast.lab import capture

DUMP = shutil.which("tcpdump", path="/usr/bin:/usr/sbin:/sbin:/bin")
NODES = 4
EPOCH_US = 80_000_000
ROWS = 300


def veilcast(*words: str) -> None:
    # What it starts keeps its outputs open, so nobody may wait for their end.
    command = [sys.executable, "-m", "veilcast.cli.main", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=HANG_S)


def wait_for_rows(taps: list[Path]) -> None:
    wait_until(lambda: all(tap.exists() and tap.read_bytes().count(b"\n") >= ROWS for tap in taps))


def wait_for_the_end(file: Path) -> None:
    """Until tcpdump has written all that was sent so far: it writes packets in their order, and one more is sent."""
    last = os.urandom(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def is_written() -> bool:
            stranger.sendto(last, ("127.0.0.1", 4000))
            return last in file.read_bytes()[-(1 << 20) :]

        wait_until(is_written)


def counted(table: pa.Table) -> Counter[tuple[str, str, int]]:
    return Counter(zip(*(table[name].to_pylist() for name in ("src", "dst", "size")), strict=True))


@pytest.mark.all_only
@pytest.mark.skipif(DUMP is None, reason="tcpdump is not installed")
def test_taps_and_tcpdump_tell_the_same_cells(tmp_path: Path) -> None:
    assert DUMP is not None
    file, net = tmp_path / "lo.pcap", tmp_path / "net"
    command = [DUMP, "-i", "lo", "-U", "-s", "128", "-B", "65536", "-w", str(file), "udp and port 4000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dump:
        assert dump.stderr is not None
        try:
            if not any("listening on" in line for line in dump.stderr):
                pytest.skip("tcpdump may not listen here")
            veilcast("net", "up", str(NODES), "--dir", str(net), "--rate", "4", "--epoch", "80", "--tap")
            try:
                taps = [net / f"{number:02}" / "tap" for number in range(1, NODES + 1)]
                wait_for_rows([tap / "cells.jsonl" for tap in taps])
            finally:
                veilcast("net", "down", "--dir", str(net), "--keep")
            wait_for_the_end(file)
        finally:
            dump.terminate()
    tapped, notes = capture.read(taps, run="r", epoch_us=EPOCH_US)
    dumped, _ = capture.read([file], run="r", epoch_us=EPOCH_US)
    own = {one.format.removeprefix("tap of ") for one in notes.files}
    wanted = Counter({link: count for link, count in counted(dumped).items() if own.intersection(link[:2])})
    assert len(own) == NODES
    assert counted(tapped) == wanted
    assert {size for _, _, size in wanted} == {1200}
    assert max(abs(clock.ahead_us) for clock in notes.clocks) < 100_000

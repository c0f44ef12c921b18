"""A capture that `tcpdump` made of real traffic on loopback says what was sent."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waits import HANG_S
from veilcast.lab import capture
from veilcast.net.address import format_address

DUMP = shutil.which("tcpdump", path="/usr/bin:/usr/sbin:/sbin:/bin")


@contextmanager
def dump(path: Path, device: str, ports: list[int], packets: int, *options: str) -> Iterator[None]:
    """Records `packets` packets of these ports, and then ends by itself."""
    assert DUMP is not None
    wanted = " or ".join(f"port {port}" for port in ports)
    command = [DUMP, "-i", device, "-U", "-w", str(path), "-c", str(packets), *options, wanted]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = ""
        for line in child.stderr:
            said += line
            if "listening on" in line:
                break
        else:
            pytest.skip(f"tcpdump may not listen here: {said.strip()}")
        try:
            yield
            child.wait(HANG_S)
        finally:
            child.kill()


@pytest.mark.skipif(DUMP is None, reason="tcpdump is not installed")
@pytest.mark.parametrize(
    ("device", "options"),
    [("lo", ()), ("any", ()), ("lo", ("--nano",)), ("lo", ("-s", "96"))],
    ids=["Ethernet", "cooked", "nanoseconds", "cut"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcpdump_records_exactly_the_sent_datagrams(
    host: str, device: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    path = tmp_path / "a.pcap"
    try:
        ends = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(2)]
        for end in ends:
            end.bind((host, 0))
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")
    sent: Counter[tuple[str, str, int]] = Counter()
    names = [format_address(end.getsockname()) for end in ends]
    with dump(path, device, [end.getsockname()[1] for end in ends], 50, *options):
        for number in range(50):
            one = number % 2
            ends[one].sendto(bytes([number]) * (1200 - number % 3), ends[1 - one].getsockname())
            ends[1 - one].recv(2000)
            sent[names[one], names[1 - one], 1200 - number % 3] += 1
    for end in ends:
        end.close()
    table, notes = capture.read([path], run="r", epoch_us=10_000_000)
    found = Counter(zip(*(table[column].to_pylist() for column in ("src", "dst", "size")), strict=True))
    assert found == sent
    assert notes.files[0].left_out == {}
    assert notes.remarks == ()
    times = table["t_us"].to_pylist()
    assert times == sorted(times)
    assert 1_600_000_000_000_000 < times[0] <= times[-1] < times[0] + 60_000_000

"""Any bytes give rows or an error of ours, in a time that grows with their number."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap, write_file
from support.waits import HANG_S
from veilcast.errors import VeilcastError
from veilcast.lab import capture

SENT = [
    SentPacket(START_US, content=bytes(40)),
    SentPacket(START_US + 1, "[2001:db8::1]:1", "[::1]:2", bytes(30)),
    SentPacket(START_US + 2, protocol=6, content=bytes(20)),
]
EXTENDED = ip(SENT[1], [(0, bytes(7)), (44, b"\0\0\1" + bytes(4)), (51, bytes([1]) + bytes(10))])
PACKETS = [*(ip(one) for one in SENT), EXTENDED, ip(SENT[0], piece=0x2000)]


def pcapng(*, big: bool) -> bytes:
    file = Pcapng(big=big).interface(1, 9, 5).interface(276, 0x80 | 20)
    for packet in PACKETS:
        file.enhanced(0, START_US, frame_packet(packet, 1, tags=1)).enhanced(1, START_US, frame_packet(packet, 276))
        file.simple(frame_packet(packet, 1)).obsolete(1, START_US, frame_packet(packet, 276))
    return file.section(big=not big).interface(113).enhanced(0, START_US, frame_packet(PACKETS[0], 113)).bytes


WHOLE = [
    *(
        pcap([(START_US, frame_packet(packet, link, tags=link)) for packet in PACKETS], link, big=big, nano=big)
        for link in (0, 1, 101, 113, 276)
        for big in (False, True)
    ),
    pcapng(big=False),
    pcapng(big=True),
]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A capture with some of its bytes changed, left out, doubled or cut off."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(("change", "number", "insert", "remove", "cut"))):
            case "change":
                data[at] = draw(st.integers(0, 255))
            case "number":
                data[at : at + 4] = draw(
                    st.sampled_from((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x0c"))
                )
            case "insert":
                data[at:at] = draw(st.binary(max_size=20))
            case "remove":
                del data[at : at + draw(st.integers(1, 20))]
            case "cut":
                del data[max(at, 1) :]
        data = data or bytearray(b"\0")
    return bytes(data)


def survive(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = write_file(Path(directory), data)
        try:
            table, notes = capture.read([path], run="r", epoch_us=EPOCH_US, step=200)
        except VeilcastError:
            return
        assert len(table) <= notes.files[0].cells <= notes.files[0].rows <= len(data)
        table.validate(full=True)
        assert notes.lines()


@settings(max_examples=200)
@given(spoiled())
def test_a_spoiled_capture_gives_rows_or_an_error_of_ours(data: bytes) -> None:
    survive(data)


@settings(max_examples=100)
@given(st.sampled_from([one[:32] for one in WHOLE]), st.binary(max_size=400))
@example(b"", b"\0")
@example(b"", b"[" * 3000)
def test_random_bytes_give_rows_or_an_error_of_ours(head: bytes, rest: bytes) -> None:
    survive(head + rest)
    survive(rest or b"\0")


@settings(max_examples=50)
@given(spoiled(), st.integers(0, 200), st.integers(0, 255))
def test_a_spoiled_packed_capture_gives_rows_or_an_error_of_ours(data: bytes, at: int, value: int) -> None:
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[at % len(packed)] = value
    survive(bytes(packed))


@settings(max_examples=50)
@given(st.binary(max_size=60), st.integers(0, 3))
def test_a_spoiled_table_gives_rows_or_an_error_of_ours(middle: bytes, ending: int) -> None:
    line = b'["r",1,2,"a","b",1200]\n'
    survive(line + b"[" + middle + (b"\n" + line) * ending)


@pytest.mark.all_only
def test_no_kernel_reads_past_its_bytes(tmp_path: Path) -> None:
    """The same hunt in another process, where every index of every kernel is checked."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "captur"]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert child.returncode == 0, child.stdout[-3000:]

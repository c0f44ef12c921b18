"""However a capture is cut, packed or damaged, every whole record is read once, and the rest is reported."""

from __future__ import annotations

import gzip
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap, write_file
from veilcast.errors import StorageError, TamperedError, VeilcastError
from veilcast.lab import capture
from veilcast.lab.capture import file_spans
from veilcast.lab.capture.pcap import KEPT_MAX

SENT = [SentPacket(START_US + 7 * number, content=bytes([number]) * (50 + number)) for number in range(100)]
FRAMED = [(one.t_us, frame_packet(ip(one), 1)) for one in SENT]
PCAP = pcap(FRAMED)


def pcapng() -> bytes:
    file = Pcapng().interface(1)
    for number, (t_us, packet) in enumerate(FRAMED):
        if number == 40:
            file.interface(1, 9)
        if number == 70:
            file.section(big=True).interface(101).interface(1, 9)
        file.enhanced(number >= 40, t_us * (1000 if number >= 40 else 1), packet)
    return file.bytes


FILES = {"pcap": PCAP, "pcapng": pcapng()}


def times(directory: Path, data: bytes, step: int = file_spans.STEP) -> tuple[list[int], tuple[str, ...]]:
    table, notes = capture.read([write_file(directory, data)], run="r", epoch_us=EPOCH_US, step=step)
    return table["t_us"].to_pylist(), notes.files[0].remarks


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("step", [1, 100, 1000, 1 << 20])
def test_the_rows_are_the_same_however_the_file_is_cut(
    name: str, packed: bool, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_spans, "CHUNK", 333)
    data = gzip.compress(FILES[name]) if packed else FILES[name]
    found, remarks = times(tmp_path, data, step)
    assert sorted(found) == [one.t_us for one in SENT]
    assert remarks == ()


@pytest.mark.parametrize("name", FILES)
def test_spans_lie_one_after_another_and_know_how_many_packets_they_hold(name: str, tmp_path: Path) -> None:
    found, damage = file_spans.cut_spans(write_file(tmp_path, FILES[name]), 0, 1000)
    assert damage is None
    assert len(found) > 8
    assert sum(span.packets for span in found) == len(SENT)
    assert [span.end for span in found[:-1]] == [span.start for span in found[1:]]
    assert found[-1].end == len(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_capture_is_used_up_to_the_cut_and_the_cut_is_reported(name: str, tmp_path: Path) -> None:
    data = FILES[name]
    found, remarks = times(tmp_path, data[:-20])
    assert sorted(found) == [one.t_us for one in SENT[:-1]]
    assert len(remarks) == 1
    assert remarks[0].startswith("it is cut: its last ")


def test_a_packed_capture_that_is_cut_or_damaged_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    rng = random.Random(1)
    plain = pcap([(one.t_us, frame_packet(ip(replace(one, content=rng.randbytes(200))), 1)) for one in SENT])
    packed = gzip.compress(plain)
    for spoiled, told in (
        (packed[:-6000], "it is cut: what was packed does not end"),
        (packed[:-1], "it is cut: what was packed does not end"),
        (packed[:-8] + bytes(8), "it is damaged: it cannot be unpacked to its end"),
        (packed[:9000] + b"\xff" * 5000 + packed[14000:], "it is damaged: it cannot be unpacked to its end"),
    ):
        found, remarks = times(tmp_path, spoiled)
        assert len(found) > 25
        assert found == [one.t_us for one in SENT[: len(found)]]
        assert remarks == (told,)
    assert times(tmp_path, gzip.compress(PCAP[:-20]))[1][0].startswith("it is cut: its last ")
    assert times(tmp_path, gzip.compress(PCAP[:500]) + gzip.compress(PCAP[500:])) == ([one.t_us for one in SENT], ())


@pytest.mark.parametrize(
    "spoiled",
    [
        PCAP + struct.pack("<IIII", 1, 1, KEPT_MAX + 1, 5) + bytes(KEPT_MAX + 1),
        PCAP + struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 5) + bytes(100),
        FILES["pcapng"] + struct.pack(">II", 6, 0xFFFFFFF0) + bytes(100),
        FILES["pcapng"] + struct.pack(">II", 6, 8) + bytes(100),
        FILES["pcapng"] + struct.pack(">II", 6, 33) + bytes(100),
        FILES["pcapng"] + struct.pack(">II", 6, 32) + bytes(100),
        FILES["pcapng"] + struct.pack(">III", 0x0A0D0D0A, 28, 5) + bytes(100),
    ],
    ids=["one too long", "4 GB", "4 GB block", "short block", "odd block", "other length behind", "no byte order"],
)
def test_an_impossible_length_ends_the_reading_there(spoiled: bytes, tmp_path: Path) -> None:
    for data in (spoiled, gzip.compress(spoiled)):
        found, remarks = times(tmp_path, data)
        assert sorted(found) == [one.t_us for one in SENT]
        (remark,) = remarks
        assert remark.startswith("it is damaged at byte ")
        assert remark.endswith("; the rest is left out")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"\xd4\xc3", "its header is cut"),
        (PCAP[:23], "is no capture: its header is cut"),
        (FILES["pcapng"][:27], "is no capture: its header is cut"),
        (gzip.compress(PCAP[:23]), "is no capture: its header is cut"),
        (gzip.compress(b""), "is no capture: its header is cut"),
        (gzip.compress(b"something else that is long enough"), "is no capture: what is packed in it is neither"),
        (gzip.compress(PCAP)[:12], "is no capture: it is cut: what was packed does not end"),
        (b"\x1f\x8b" + b"no gzip at all" * 9, "is no capture: it is damaged"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "is no capture: a section without a byte order"),
        (b"%PDF-1.7 and so on", "is no capture: it begins like neither pcap nor pcapng"),
        (b"[1, 2]\n", "the line at byte 0, is no row of cells"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_capture_is_refused_in_one_line(data: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(TamperedError, match=told) as caught:
        times(tmp_path, data)
    assert "a.pcap" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_capture_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        capture.read([tmp_path / "none"], run="r", epoch_us=EPOCH_US)
    with pytest.raises(StorageError, match=r"holds no cells\.jsonl"):
        capture.read([tmp_path], run="r", epoch_us=EPOCH_US)


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = write_file(tmp_path, PCAP)
    (span,), _ = file_spans.cut_spans(path, 0, 1 << 20)
    path.write_bytes(PCAP[:-1])
    with pytest.raises(VeilcastError, match="has become shorter"):
        list(file_spans.Pieces(span, 1 << 20))


def test_a_bomb_is_unpacked_in_bounded_pieces(tmp_path: Path) -> None:
    """A million packets of nothing, packed in a few kilobytes: each is looked at, and no more than a chunk is held."""
    packed = gzip.compress(PCAP + bytes(16 << 20))
    assert len(packed) < 1 << 15
    table, notes = capture.read([write_file(tmp_path, packed)], run="r", epoch_us=EPOCH_US)
    assert len(table) == len(SENT)
    assert notes.files[0].left_out == {"cut before their headers end": 1 << 20}

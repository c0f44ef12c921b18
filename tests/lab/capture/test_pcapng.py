"""Sections in either order, interfaces that count time in their own ways, and blocks of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, write_file
from veilcast.errors import ConfigError
from veilcast.lab import capture
from veilcast.lab.capture.pcapng import INTERFACES_MAX, SECTIONS_MAX

SENT = SentPacket(START_US + 654_321)
PACKET = frame_packet(ip(SENT), 1)


def read(directory: Path, file: Pcapng) -> tuple[list[int], capture.FileReport]:
    table, notes = capture.read([write_file(directory, file.bytes)], run="r", epoch_us=EPOCH_US)
    assert set(table["src"].to_pylist()) == {SENT.src}
    assert set(table["size"].to_pylist()) == {len(SENT.content)}
    return table["t_us"].to_pylist(), notes.files[0]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("resolution", "ticks", "tick_us"),
    [
        (None, SENT.t_us, 1),
        (0, SENT.t_us // 1_000_000, 1_000_000),
        (3, SENT.t_us // 1000, 1000),
        (6, SENT.t_us, 1),
        (9, SENT.t_us * 1000, 1),
        (0x80 | 10, (SENT.t_us << 10) // 1_000_000, 977),
        (0x80 | 32, (SENT.t_us << 32) // 1_000_000, 1),
    ],
)
def test_times_count_as_their_interface_says(
    big: bool, resolution: int | None, ticks: int, tick_us: int, tmp_path: Path
) -> None:
    (found,), _ = read(tmp_path, Pcapng(big=big).interface(1, resolution).enhanced(0, ticks, PACKET))
    assert 0 <= SENT.t_us - found <= tick_us


@pytest.mark.parametrize(
    ("resolution", "ticks"), [(19, 1 << 63), (24, 1 << 63), (0x80 | 63, 1 << 63), (0x80 | 44, 1 << 43)]
)
def test_ticks_too_fine_for_a_product_still_give_their_fraction(resolution: int, ticks: int, tmp_path: Path) -> None:
    size = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    (found,), _ = read(tmp_path, Pcapng().interface(1, resolution).enhanced(0, ticks, PACKET))
    assert abs(found - ticks * 1_000_000 // size) <= 1


def test_the_offset_of_an_interface_is_added(tmp_path: Path) -> None:
    file = Pcapng(big=True).interface(1, offset_s=1_700_000_000).enhanced(0, 5, PACKET)
    assert read(tmp_path, file)[0] == [1_700_000_000_000_005]


def test_sections_and_interfaces_have_their_own_ways(tmp_path: Path) -> None:
    packets = [ip(replace(SENT, content=bytes([number]) * 1200)) for number in range(5)]
    file = Pcapng().interface(1).interface(101, 9).enhanced(1, SENT.t_us * 1000, packets[0])
    file.enhanced(0, 7, frame_packet(packets[1], 1)).other(5, b"statistics").other(4, b"names")
    file.interface(276).enhanced(2, 8, frame_packet(packets[2], 276))
    file.section(big=True).interface(113).enhanced(0, 9, frame_packet(packets[3], 113))
    file.obsolete(0, 10, frame_packet(packets[4], 113))
    times, notes = read(tmp_path, file)
    assert sorted(times) == [7, 8, 9, 10, SENT.t_us]
    assert notes.left_out == {}


def test_a_simple_packet_has_no_time_and_this_is_said(tmp_path: Path) -> None:
    times, notes = read(tmp_path, Pcapng().interface(1).simple(PACKET).enhanced(0, SENT.t_us, PACKET))
    assert times == [0, SENT.t_us]
    assert notes.remarks == ("1 have no time, and stand at 0",)


def test_packets_of_undescribed_interfaces_are_counted(tmp_path: Path) -> None:
    times, notes = read(
        tmp_path, Pcapng().interface(1).enhanced(1, 5, PACKET).enhanced(0, 6, PACKET).other(6, b"short")
    )
    assert times == [6]
    assert notes.left_out == {"of an interface or link type that is not known": 2}


@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_description_of_an_interface_holds_for_the_packets_after_it(step: int, tmp_path: Path) -> None:
    file = Pcapng().interface(1).enhanced(1, 5, PACKET).interface(1).enhanced(1, 6, PACKET)
    file.section(big=False).interface(1).enhanced(1, 7, PACKET).enhanced(0, 8, PACKET)
    table, notes = capture.read([write_file(tmp_path, file.bytes)], run="r", epoch_us=EPOCH_US, step=step)
    assert table["t_us"].to_pylist() == [6]
    assert notes.files[0].cells == 2
    assert notes.files[0].left_out == {"of an interface or link type that is not known": 2}


def test_an_interface_that_is_not_read_among_others_is_counted_and_alone_is_refused(tmp_path: Path) -> None:
    times, notes = read(tmp_path, Pcapng().interface(1).interface(127).enhanced(1, 5, PACKET).enhanced(0, 6, PACKET))
    assert (times, notes.left_out) == ([6], {"of an interface or link type that is not known": 1})
    assert notes.remarks == ("link types that are not read: 127",)
    with pytest.raises(ConfigError, match="has link type 127, which is not read"):
        read(tmp_path, Pcapng().interface(127).enhanced(0, 5, PACKET))


def test_impossible_times_are_left_out(tmp_path: Path) -> None:
    file = Pcapng().interface(1, 0).interface(1, offset_s=-10).enhanced(0, 1 << 50, PACKET).enhanced(1, 5, PACKET)
    times, notes = read(tmp_path, file.enhanced(0, 3, PACKET))
    assert times == [3_000_000]
    assert notes.left_out == {"at a time that cannot be": 2}


@pytest.mark.parametrize(
    ("resolution", "offset_s", "told"),
    [(25, None, "resolution"), (0x80 | 64, None, "resolution"), (6, 1 << 41, "offset"), (6, -(1 << 63), "offset")],
)
def test_an_impossible_interface_ends_the_reading_there(
    resolution: int, offset_s: int | None, told: str, tmp_path: Path
) -> None:
    file = Pcapng().interface(1).enhanced(0, 5, PACKET).interface(1, resolution, offset_s).enhanced(0, 6, PACKET)
    times, notes = read(tmp_path, file)
    assert times == [5]
    assert told in notes.remarks[0]
    assert "the rest is left out" in notes.remarks[0]


def test_interfaces_and_sections_are_bounded(tmp_path: Path) -> None:
    file = Pcapng()
    file.interface(1)
    described = file.bytes[28:]
    file.enhanced(0, 5, PACKET)
    file.bytes += described * INTERFACES_MAX
    times, notes = read(tmp_path, file)
    assert (times, notes.remarks[0].partition(": ")[2]) == (
        [5],
        f"more than {INTERFACES_MAX:,} interfaces; the rest is left out",
    )
    file = Pcapng().interface(1).enhanced(0, 5, PACKET)
    file.bytes += Pcapng().bytes * SECTIONS_MAX
    assert f"more than {SECTIONS_MAX:,} sections" in read(tmp_path, file)[1].remarks[0]

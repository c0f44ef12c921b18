"""A packet shows the same source, destination and size on every link type. Nothing is guessed."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from support.capture_files import EPOCH_US, START_US, SentPacket, frame_packet, ip, pcap, write_file
from veilcast.errors import ConfigError
from veilcast.lab import capture
from veilcast.lab.capture.packets import LINKS, REASONS

SIX = ("[2001:db8::1]:4000", "[fe80::2]:4001")


def read(directory: Path, data: bytes) -> tuple[list[dict[str, object]], capture.FileReport]:
    table, notes = capture.read([write_file(directory, data)], run="r", epoch_us=EPOCH_US)
    return table.to_pylist(), notes.files[0]


def rows(*sent: SentPacket) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(one.cell()) for one in sent]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("protocol", [17, 6])
@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("link", sorted(LINKS))
def test_every_link_type_shows_the_same_packet(link: int, six: bool, protocol: int, big: bool, tmp_path: Path) -> None:
    src, dst = SIX if six else ("192.0.2.1:4000", "198.51.100.255:65535")
    sent = SentPacket(START_US + 123_456, src, dst, b"content" * 9, protocol)
    found, notes = read(tmp_path, pcap([(sent.t_us, frame_packet(ip(sent), link, big=big))], link, big=big))
    assert found == rows(sent)
    assert notes == capture.FileReport(str(tmp_path / "a.pcap"), "pcap", 1, 1)


def test_vlan_tags_are_passed_over_up_to_their_bound(tmp_path: Path) -> None:
    sent = SentPacket(START_US)
    packets = [(sent.t_us, frame_packet(ip(sent), 1, tags=tags)) for tags in range(6)]
    found, notes = read(tmp_path, pcap(packets))
    assert found == rows(*[sent] * 5)
    assert notes.left_out == {"not IP": 1}


def test_options_of_ipv4_and_an_empty_datagram(tmp_path: Path) -> None:
    sent = SentPacket(START_US, content=b"")
    found, _ = read(tmp_path, pcap([(sent.t_us, frame_packet(ip(sent, options=bytes(12)), 1))]))
    assert found == rows(sent)


def test_extension_headers_of_ipv6_are_passed_over_up_to_their_bound(tmp_path: Path) -> None:
    sent = SentPacket(START_US, *SIX)
    hop, authentication = (0, bytes([0]) + bytes(6)), (51, bytes([4]) + bytes(22))
    routing, whole = (43, bytes([2]) + bytes(22)), (44, bytes(7))
    several = [(hop,), (hop, routing, whole, authentication), (hop,) * 16, (hop,) * 17]
    found, notes = read(tmp_path, pcap([(sent.t_us, frame_packet(ip(sent, each), 1)) for each in several]))
    assert found == rows(sent, sent, sent)
    assert notes.left_out == {"neither UDP nor TCP": 1}


def test_a_first_fragment_is_the_datagram_and_later_ones_are_counted(tmp_path: Path) -> None:
    four, six = SentPacket(START_US, content=bytes(4000)), SentPacket(START_US, *SIX, content=bytes(4000))
    stream = SentPacket(START_US, protocol=6)
    packets = [
        frame_packet(ip(four, piece=0x2000)[:1500], 1),
        frame_packet(ip(four, piece=0x2000 | 185)[:1500], 1),
        frame_packet(ip(four, piece=370), 1),
        frame_packet(ip(six, [(44, b"\0\0\1" + bytes(4))])[:1500], 1),
        frame_packet(ip(six, [(44, b"\0\5\xa8" + bytes(4))]), 1),
        frame_packet(ip(stream, piece=0x2000), 1),
    ]
    found, notes = read(tmp_path, pcap([(START_US, packet) for packet in packets]))
    assert found == rows(four, six)
    assert notes.left_out == {"later fragments": 3, "fragments of TCP segments": 1}
    assert notes.remarks == ("2 are first fragments of UDP datagrams, taken for the whole",)


def test_a_segment_that_the_network_card_will_cut_up_has_the_length_of_its_record(tmp_path: Path) -> None:
    sent = SentPacket(START_US, content=bytes(3000), protocol=6)
    packet = bytearray(ip(sent))
    packet[2:4] = bytes(2)
    assert read(tmp_path, pcap([(sent.t_us, frame_packet(bytes(packet), 1))]))[0] == rows(sent)


def test_packets_that_are_no_cells_are_counted_by_reason(tmp_path: Path) -> None:
    sent, bare = SentPacket(START_US), SentPacket(START_US, protocol=6, content=b"")
    good = ip(sent)
    packets = {
        "TCP segments without content": frame_packet(ip(bare), 1),
        "not IP": b"\2" * 12 + b"\x08\x06" + bytes(28),
        "neither UDP nor TCP": frame_packet(good[:9] + b"\x01" + good[10:], 1),
        "malformed": frame_packet(b"\x41" + good[1:], 1),
        "cut before their headers end": frame_packet(good[:27], 1),
    }
    found, notes = read(tmp_path, pcap([(START_US, packet) for packet in (*packets.values(), frame_packet(good, 1))]))
    assert found == rows(sent)
    assert notes.left_out == dict.fromkeys(packets, 1)
    assert set(packets) < set(REASONS)


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda good: good[:24] + struct.pack("!H", 7) + good[26:],
        lambda good: good[:24] + struct.pack("!H", 1209) + good[26:],
        lambda good: good[:2] + struct.pack("!H", 19) + good[4:],
        lambda good: b"\x65" + good[1:],
    ],
    ids=["UDP shorter than its header", "UDP longer than its packet", "IP shorter than its header", "wrong version"],
)
def test_lengths_that_contradict_one_another_are_malformed(spoiled: object, tmp_path: Path) -> None:
    assert callable(spoiled)
    good = SentPacket(START_US)
    packets = [(START_US, frame_packet(ip(good), 1)), (START_US, b"\2" * 12 + b"\x08\0" + spoiled(ip(good)))]
    found, notes = read(tmp_path, pcap(packets))
    assert found == rows(good)
    assert notes.left_out == {"malformed": 1}


def test_sizes_come_from_headers_whatever_was_kept_of_a_packet(tmp_path: Path) -> None:
    four, six = SentPacket(START_US), SentPacket(START_US, *SIX, protocol=6)
    packets = [(START_US, frame_packet(ip(sent), 1)) for sent in (four, six)]
    assert read(tmp_path, pcap(packets, snap=14 + 40 + 24))[0] == rows(four, six)


def test_a_link_type_that_is_not_read_is_named_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.pcap has link type 127, which is not read; those that are: 0, 1, 12"):
        read(tmp_path, pcap([(START_US, bytes(60))], link=127))


def test_a_capture_without_udp_or_tcp_is_refused(tmp_path: Path) -> None:
    arp = b"\2" * 12 + b"\x08\x06" + bytes(28)
    with pytest.raises(ConfigError, match=r"no UDP or TCP traffic: of 3 packets, 3 are not IP"):
        read(tmp_path, pcap([(START_US, arp)] * 3))
    with pytest.raises(ConfigError, match=r"holds no packets$"):
        read(tmp_path, pcap([]))
    with pytest.raises(ConfigError, match="holds no packets: it is damaged at byte 24: a packet of more than 262,144"):
        read(tmp_path, pcap([]) + b"\xff" * 50)

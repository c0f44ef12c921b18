"""A packet seen in several places is one cell; clocks that disagree are corrected, and the correction is reported."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from support.capture_files import EPOCH_US, START_US, Pcapng, SentPacket, frame_packet, ip, pcap, write_file
from veilcast.lab import capture
from veilcast.lab.capture import duplicates, file_spans, packet_captures
from veilcast.lab.capture.duplicates import PLACES_MAX, WINDOW_US, DuplicateFilter
from veilcast.lab.capture.layout import Octets, Packets
from veilcast.lab.capture.packet_captures import POINTS_MAX, merge_findings, survey_span
from veilcast.lab.capture.packets import Dissected, dissect

U, V, W = "192.0.2.1:4000", "192.0.2.2:4000", "192.0.2.3:4000"


def traffic(count: int, ends: tuple[str, str], seed: int = 1, *, both_ways: bool = True) -> list[SentPacket]:
    rng, found = random.Random(seed), []
    for number in range(count):
        src, dst = ends if number % 2 == 0 or not both_ways else ends[::-1]
        t_us = START_US + number * 50_000 + rng.randrange(20_000)
        found.append(SentPacket(t_us, src, dst, rng.randbytes(200)))
    return found


def seen(sent: list[SentPacket], at: str, *, way_us: int = 0, ahead_us: int = 0, snap: int = 262_144) -> bytes:
    """The capture at one end: sent packets at once, received packets after their travel time."""
    late = [(one.t_us + (0 if one.src == at else way_us) + ahead_us, frame_packet(ip(one), 1)) for one in sent]
    return pcap(sorted(late), snap=snap)


def read(*paths: Path) -> tuple[list[tuple[int, str, str]], capture.ReadingReport]:
    table, notes = capture.read(paths, run="r", epoch_us=EPOCH_US)
    assert table["t_us"].to_pylist() == sorted(table["t_us"].to_pylist())
    return list(zip(*(table[name].to_pylist() for name in ("t_us", "src", "dst")), strict=True)), notes


def test_both_ends_of_a_link_record_each_packet_once(tmp_path: Path) -> None:
    sent = traffic(100, (U, V))
    paths = [write_file(tmp_path, seen(sent, end, way_us=20_000), f"{end}.pcap") for end in (U, V)]
    found, notes = read(*paths)
    assert found == [(one.t_us, one.src, one.dst) for one in sent]
    (clock,) = notes.clocks
    assert clock == capture.ClockCorrection(str(paths[1]), str(paths[0]), 0, 100, 20_000, True)


@pytest.mark.parametrize("ahead_us", [3_600_000_000, -250_000, 17])
def test_a_clock_that_is_wrong_is_set_and_the_correction_is_told(ahead_us: int, tmp_path: Path) -> None:
    sent = traffic(100, (U, V))
    paths = [
        write_file(tmp_path, seen(sent, U, way_us=20_000), "u.pcap"),
        write_file(tmp_path, seen(sent, V, way_us=20_000, ahead_us=ahead_us), "v.pcap"),
    ]
    found, notes = read(*paths)
    assert found == [(one.t_us, one.src, one.dst) for one in sent]
    assert notes.clocks[0].ahead_us == ahead_us
    way = "ahead of" if ahead_us > 0 else "behind"
    assert f"clock {abs(ahead_us) / 1e6:.6f} s {way} {paths[0]}, by 100 packets" in notes.clocks[0].line()
    assert notes.clocks[0].line().endswith("; corrected")


def test_one_way_traffic_leaves_the_travel_time_in_the_estimate_and_is_reported(
    tmp_path: Path,
) -> None:
    sent = traffic(50, (U, V), both_ways=False)
    paths = [write_file(tmp_path, seen(sent, end, way_us=20_000), f"{end}.pcap") for end in (U, V)]
    found, notes = read(*paths)
    assert len(found) == 50
    assert notes.clocks[0].ahead_us == 20_000
    assert "the time on the way with it" in notes.clocks[0].line()


def test_clocks_are_set_along_a_chain_of_files(tmp_path: Path) -> None:
    first, second = traffic(100, (U, V)), traffic(60, (V, W), seed=2)
    paths = [
        write_file(tmp_path, seen(first, U, way_us=1000), "u.pcap"),
        write_file(tmp_path, seen(second, W, way_us=1000, ahead_us=-5_000_000), "w.pcap"),
        write_file(tmp_path, seen([*first, *second], V, way_us=1000, ahead_us=2_000_000), "v.pcap"),
    ]
    found, notes = read(*paths)
    assert Counter(found) == Counter((one.t_us, one.src, one.dst) for one in [*first, *second])
    assert [(clock.against, clock.ahead_us) for clock in notes.clocks] == [
        (str(paths[2]), -7_000_000),
        (str(paths[0]), 2_000_000),
    ]


def test_files_without_a_common_packet_stay_as_they_are_and_this_is_told(tmp_path: Path) -> None:
    first, second = traffic(20, (U, V)), traffic(20, (V, W), seed=2)
    paths = [
        write_file(tmp_path, seen(first, U), "u.pcap"),
        write_file(tmp_path, seen(second, W, ahead_us=9), "w.pcap"),
    ]
    found, notes = read(*paths)
    assert len(found) == 40
    assert notes.clocks[0].against is None
    assert "shares no packets" in notes.clocks[0].line()


def test_an_adversary_that_repeats_its_packets_later_at_another_place_does_not_set_the_clocks(tmp_path: Path) -> None:
    sent, foreign = traffic(20, (U, V)), [traffic(20, (f"10.0.0.{n}:9", U), seed=n + 2) for n in range(3)]
    strange = [one for several in foreign for one in several]
    later = [replace(one, t_us=one.t_us + 5_000_000) for one in strange]
    paths = [
        write_file(tmp_path, seen([*sent, *strange], U), "u.pcap"),
        write_file(tmp_path, seen([*sent, *later], V), "v.pcap"),
    ]
    assert read(*paths)[1].clocks[0].ahead_us == 5_000_000
    _, notes = capture.read(paths, run="r", epoch_us=EPOCH_US, trusted=[U, V])
    assert (notes.clocks[0].ahead_us, notes.clocks[0].packets) == (0, 20)


def test_a_stranger_that_forges_marks_cannot_remove_a_packet_between_trusted_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is a public function, so an adversary can make packets of any mark; here all packets have the same."""

    def same(data: Octets, packets: Packets) -> Dissected:
        found = dissect(data, packets)
        return msgspec.structs.replace(found, mark=np.full(len(found.mark), 12345))

    (one,), strange = traffic(1, (U, V)), SentPacket(START_US - 1000, W, U, b"x" * 200)
    paths = [write_file(tmp_path, seen([strange], U), "u.pcap"), write_file(tmp_path, seen([one], V), "v.pcap")]
    monkeypatch.setattr(packet_captures, "dissect", same)
    assert [row[1] for row in read(*paths)[0]] == [W]
    table, _ = capture.read(paths, run="r", epoch_us=EPOCH_US, trusted=[U, V])
    assert table["src"].to_pylist() == [W, U]


def test_packets_that_only_one_end_saw_are_cells_too(tmp_path: Path) -> None:
    sent = traffic(100, (U, V))
    paths = [
        write_file(tmp_path, seen(sent[:80], U), "u.pcap"),
        write_file(tmp_path, seen(sent[30:], V, ahead_us=77_000), "v.pcap"),
    ]
    assert read(*paths)[0] == [(one.t_us, one.src, one.dst) for one in sent]


def test_the_same_content_again_is_another_packet(tmp_path: Path) -> None:
    """Packets of equal content, as bare heartbeats are; each end loses one of them."""
    beats = [SentPacket(START_US + second * 1_000_000, U, V, b"beat" * 50) for second in range(10)]
    other = traffic(20, (U, V))
    paths = [
        write_file(tmp_path, seen([*beats[:3], *beats[4:], *other], U, way_us=5000), "u.pcap"),
        write_file(tmp_path, seen([*beats[:7], *beats[8:], *other], V, way_us=5000), "v.pcap"),
    ]
    found = Counter(read(*paths)[0])
    wanted = Counter((one.t_us, one.src, one.dst) for one in [*beats, *other])
    wanted.subtract([(beats[3].t_us, U, V)])
    wanted.update([(beats[3].t_us + 5000, U, V)])
    assert found == +wanted


def test_a_burst_of_the_same_content_has_as_many_packets_as_the_place_that_saw_most(tmp_path: Path) -> None:
    burst = [SentPacket(START_US + 10 * number, U, V, b"again" * 50) for number in range(100)]
    other = traffic(20, (U, V))
    paths = [
        write_file(tmp_path, seen([*burst, *other], U, way_us=5000), "u.pcap"),
        write_file(tmp_path, seen([*burst[:40], *burst[45:], *other], V, way_us=5000), "v.pcap"),
    ]
    assert Counter(read(*paths)[0]) == Counter((one.t_us, one.src, one.dst) for one in [*burst, *other])


def test_a_packet_on_two_interfaces_of_one_capture_is_one_cell(tmp_path: Path) -> None:
    sent = traffic(10, (U, V))
    file = Pcapng().interface(1).interface(113)
    for one in sent:
        file.enhanced(0, one.t_us, frame_packet(ip(one), 1)).enhanced(1, one.t_us + 40, frame_packet(ip(one), 113))
    assert len(read(write_file(tmp_path, file.bytes))[0]) == 10


def test_a_packet_that_comes_in_and_goes_out_is_one_cell_and_one_seen_twice_in_one_way_is_two(tmp_path: Path) -> None:
    sent = traffic(10, (U, V))
    both = [(one.t_us, frame_packet(ip(one), 276, outgoing=way)) for one in sent for way in (False, True)]
    assert len(read(write_file(tmp_path, pcap(both, 276)))[0]) == 10
    again = [(one.t_us, frame_packet(ip(one), 276)) for one in sent for _ in range(2)]
    assert len(capture.read([write_file(tmp_path, pcap(again, 276))], run="r", epoch_us=EPOCH_US)[0]) == 20


def test_places_that_are_listed_are_bounded_and_those_beyond_are_told_apart_all_the_same(tmp_path: Path) -> None:
    (one,) = traffic(1, (U, V))
    file = Pcapng()
    for number in range(POINTS_MAX + 9):
        file.interface(1).enhanced(number, one.t_us, frame_packet(ip(one), 1))
    path = write_file(tmp_path, file.bytes)
    found = [survey_span(span, 1 << 20, 0) for span in file_spans.cut_spans(path, 0, 1 << 20)[0]]
    assert len(merge_findings(found, 1)[0].points) == POINTS_MAX
    assert len(read(path)[0]) == 1 + 9


def test_packets_cut_too_short_to_be_known_again_are_counted(tmp_path: Path) -> None:
    sent = traffic(10, (U, V))
    paths = [write_file(tmp_path, seen(sent, end, snap=14 + 28 + 8), f"{end}.pcap") for end in (U, V)]
    found, notes = read(*paths)
    assert len(found) == 20
    assert notes.files[0].remarks == ("10 are cut too short to be known again where they were seen twice",)


def test_every_part_of_a_mark_tells_packets_apart(tmp_path: Path) -> None:
    one = SentPacket(START_US, content=bytes(200))
    others = [
        replace(one, src="192.0.2.1:4001"),
        replace(one, src="192.0.2.3:4000"),
        replace(one, dst="192.0.2.2:4000"),
        replace(one, dst="[::c000:202]:4001", src="[::c000:201]:4000"),
        replace(one, content=bytes(201)),
        replace(one, content=bytes(15) + b"\1" + bytes(184)),
        replace(one, protocol=6),
        replace(one, protocol=6, number=1),
    ]
    file = Pcapng()
    for number, each in enumerate([one, *others]):
        file.interface(1).enhanced(number, each.t_us, frame_packet(ip(each), 1))
    assert len(read(write_file(tmp_path, file.bytes))[0]) == 9


def test_a_fold_goes_on_over_the_edges_of_batches() -> None:
    rng = np.random.default_rng(3)
    mark, t_us = np.sort(rng.integers(0, 40, 2000)), rng.integers(0, 3 * WINDOW_US, 2000)
    point = rng.integers(0, 5, 2000)
    order = np.lexsort((point, t_us, mark))
    columns = [column[order] for column in (mark, t_us, point)]
    whole = DuplicateFilter().keep(*columns)
    folder = DuplicateFilter()
    parts = [folder.keep(*(column[start : start + 7] for column in columns)) for start in range(0, 2000, 7)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert 0 < np.count_nonzero(whole) < 2000
    assert whole[columns[0] == 0].all()


def test_places_where_one_packet_is_known_again_are_bounded() -> None:
    count = PLACES_MAX + 3
    kept = DuplicateFilter().keep(np.ones(count, np.int64), np.zeros(count, np.int64), np.arange(count))
    assert np.flatnonzero(kept).tolist() == [0, *range(PLACES_MAX, count)]


def test_the_checks_above_notice_a_fold_that_forgets_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whatever has the mark of the last is dropped."""

    def forgetful(self: DuplicateFilter, mark: np.ndarray, *_: np.ndarray) -> np.ndarray:
        return np.concatenate([[True], mark[1:] != mark[:-1]])

    monkeypatch.setattr(duplicates.DuplicateFilter, "keep", forgetful)
    with pytest.raises(AssertionError):
        test_the_same_content_again_is_another_packet(tmp_path)

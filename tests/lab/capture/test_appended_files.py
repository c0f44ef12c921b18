"""Files that grow: every record once, in any number of batches, over rotations and restarts."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import msgspec
import pytest

from support.appended_records import NODES, expected, lines, packed, tap_of, traffic
from support.capture_files import EPOCH_US, Pcapng, frame_packet, ip, pcap
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import capture
from veilcast.lab.capture import appended_files
from veilcast.lab.capture.appended_files import GONE_MAX, Offset, find_offset, plan_between

Rows = list[tuple[object, ...]]


def rows_between(start: Offset, end: Offset) -> Rows:
    found: Rows = []
    for work, part in plan_between(start, end, "r", EPOCH_US):
        found += [tuple(row.values()) for table in work(part) for row in table.to_pylist()]
    return found


def follow(path: Path, start: Offset | None = None, most: int | None = None) -> tuple[Rows, Offset]:
    """All that is there, in batches."""
    found: Rows = []
    at = start or {}
    while (end := find_offset([path], at, most)) != at:
        found += rows_between(at, end)
        at = end
    return found, at


@pytest.mark.parametrize("form", ["pcap", "tap"])
@pytest.mark.parametrize("most", [None, 1, 700, 10_000])
def test_each_record_comes_once_however_a_file_grows(form: str, most: int | None, tmp_path: Path) -> None:
    sent, rng = traffic(200), random.Random(most or 0)
    whole = packed(sent) if form == "pcap" else lines([one.cell() for one in sent])
    file = tmp_path / ("cells.jsonl" if form == "tap" else "a.pcap")
    found: Rows = []
    at: Offset = {}
    begin = 0
    while begin < len(whole):
        step = rng.choice((1, 7, 40, 300, 5_000))
        with file.open("ab") as written:
            written.write(whole[begin : begin + step])
        begin += step
        rows, at = follow(tmp_path, at, most)
        found += rows
    assert found == expected(sent)
    table, _ = capture.read([file if form == "pcap" else tmp_path], run="r", epoch_us=EPOCH_US)
    assert found == [tuple(row.values()) for row in table.to_pylist()]


def test_a_planned_batch_has_the_same_rows_again_after_the_file_has_grown(tmp_path: Path) -> None:
    sent = traffic(100)
    whole = packed(sent)
    (tmp_path / "a.pcap").write_bytes(whole[: len(whole) // 2])
    first = find_offset([tmp_path], {}, 3_000)
    second = find_offset([tmp_path], first, 3_000)
    before = rows_between(first, second)
    (tmp_path / "a.pcap").write_bytes(whole)
    assert rows_between(first, second) == before
    rest, _ = follow(tmp_path, second)
    assert rows_between({}, first) + before + rest == expected(sent)


def test_a_batch_is_bounded_and_no_file_waits_for_another(tmp_path: Path) -> None:
    sent = traffic(400)
    (tmp_path / "a.pcap").write_bytes(packed(sent[:300]))
    (tmp_path / "b.pcap").write_bytes(packed(sent[300:]))
    most, longest = 4_000, 400
    at: Offset = {}
    for _ in range(3):
        end = find_offset([tmp_path], at, most)
        taken = {name: entry["read"] - at.get(name, {"read": 24})["read"] for name, entry in end.items()}
        assert sum(taken.values()) <= most + len(taken) * longest
        assert all(taken.values())
        at = end


def test_a_renamed_file_goes_on_and_a_new_one_begins(tmp_path: Path) -> None:
    sent = traffic(120)
    first, second = packed(sent[:60]), packed(sent[60:])
    file = tmp_path / "a.pcap"
    file.write_bytes(first[:3_000])
    found, at = follow(tmp_path)
    file.write_bytes(first)
    file.rename(tmp_path / "a.pcap.1")
    file.write_bytes(second)
    more, at = follow(tmp_path, at)
    assert sorted(found + more) == sorted(expected(sent))
    (tmp_path / "a.pcap.1").unlink()
    assert follow(tmp_path, at) == ([], at)
    (tmp_path / "a.pcap.1").write_bytes(first)
    assert follow(tmp_path, at) == ([], at)


def test_files_that_are_gone_stay_known_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appended_files, "GONE_MAX", 3)
    at: Offset = {}
    for number in range(8):
        file = tmp_path / f"{number}.pcap"
        file.write_bytes(packed(traffic(2, number)))
        at = find_offset([tmp_path], at, None)
        file.unlink()
        at = find_offset([tmp_path], at, None)
        assert len(at) == min(number + 1, 3)
    assert GONE_MAX > 100


@pytest.mark.parametrize("form", ["pcap", "tap"])
@pytest.mark.parametrize("left", [0.0, 0.1, 1.0])
def test_a_file_that_was_overwritten_is_an_error(form: str, left: float, tmp_path: Path) -> None:
    write = packed if form == "pcap" else (lambda sent: lines([one.cell() for one in sent]))
    file = tmp_path / "cells.jsonl"
    file.write_bytes(write(traffic(50)))
    at = find_offset([tmp_path], {}, None)
    other = write(traffic(50, 2))
    file.write_bytes(other[: int(left * len(other))])
    with pytest.raises(TamperedError, match=r"cells.jsonl was replaced after [\d,]+ bytes"):
        find_offset([tmp_path], at, None)
    if left:
        with pytest.raises(TamperedError, match="was replaced"):
            plan_between({}, at, "r", EPOCH_US)


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.pcap"
    file.write_bytes(whole := packed(traffic(50)))
    at = find_offset([tmp_path], {}, None)
    file.write_bytes(whole[:-1])
    with pytest.raises(TamperedError, match="was replaced"):
        find_offset([tmp_path], at, None)


def test_of_two_tapped_nodes_the_senders_rows_count(tmp_path: Path) -> None:
    """Nodes 0 to 2 have taps, node 3 has none; and one node has a single neighbour."""
    sent = [one for one in traffic(300) if NODES[2] not in (one.src, one.dst) or NODES[1] in (one.src, one.dst)]
    for number in range(3):
        (tmp_path / str(number) / "tap").mkdir(parents=True)
        (tmp_path / str(number) / "tap" / "cells.jsonl").write_bytes(tap_of(NODES[number], sent))
    found, _ = follow(tmp_path, most=5_000)
    late = [msgspec.structs.replace(one.cell(), t_us=one.t_us + 300) for one in sent if one.src == NODES[3]]
    timely = [one.cell() for one in sent if one.src != NODES[3]]
    assert {NODES[3]} == {cell.src for cell in late}
    assert sorted(found) == sorted(msgspec.structs.astuple(cell) for cell in [*late, *timely])


def test_a_tap_counts_from_its_first_row_on(tmp_path: Path) -> None:
    sent = traffic(300)
    for number, part in enumerate((sent, sent[150:])):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "cells.jsonl").write_bytes(tap_of(NODES[number], part))
    found, _ = follow(tmp_path)
    ways = {(one.src, one.dst) for one in sent}
    between = [row for row in found if (row[3], row[4]) == (NODES[1], NODES[0])]
    assert (NODES[1], NODES[0]) in ways
    assert len(between) == sum((one.src, one.dst) == (NODES[1], NODES[0]) for one in sent)


def test_a_query_of_what_is_there_stops_where_it_was(tmp_path: Path) -> None:
    sent = traffic(100)
    whole, file = packed(sent), tmp_path / "a.pcap"
    file.write_bytes(whole[: len(whole) // 2])
    last = find_offset([tmp_path], {}, None)
    file.write_bytes(whole)
    (tmp_path / "b.pcap").write_bytes(packed(traffic(5, 3)))
    end = find_offset([tmp_path], find_offset([tmp_path], {}, 2_000, last), None, last)
    assert {name: entry["read"] for name, entry in end.items()} == {
        str(file): last[str(file)]["read"],
        str(tmp_path / "b.pcap"): 0,
    }


def test_what_cannot_be_followed_is_refused_in_one_line(tmp_path: Path) -> None:
    sent = traffic(20)
    for name, data in (("a.gz", gzip.compress(packed(sent))), ("a.pcapng", Pcapng().interface(1).bytes)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=f"{name} cannot be followed: only taps and pcap files"):
            find_offset([tmp_path / name], {}, None)
    assert find_offset([tmp_path], {}, None) == {}
    with pytest.raises(StorageError, match=r"cannot read .*none.pcap: No such file"):
        find_offset([tmp_path / "none.pcap"], {}, None)
    damaged = packed(sent)
    (tmp_path / "d.pcap").write_bytes(damaged + b"\xff" * 16)
    at = find_offset([tmp_path / "d.pcap"], {}, None)
    assert len(rows_between({}, at)) == 20
    with pytest.raises(TamperedError, match=r"d.pcap is damaged at byte [\d,]+: a packet of more than"):
        find_offset([tmp_path / "d.pcap"], at, None)
    (tmp_path / "u.pcap").write_bytes(pcap([(1, b"x" * 40)], 147))
    with pytest.raises(ConfigError, match="has link type 147, which is not read"):
        find_offset([tmp_path / "u.pcap"], {}, None)


def test_a_capture_of_several_places_is_refused(tmp_path: Path) -> None:
    packets = [(one.t_us, frame_packet(ip(one), 113, outgoing=place)) for one in traffic(5) for place in (True, False)]
    (tmp_path / "a.pcap").write_bytes(pcap(packets, 113))
    with pytest.raises(ConfigError, match="saw packets in several places"):
        follow(tmp_path)

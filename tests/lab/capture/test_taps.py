"""Tables of nodes and simulations: every datagram once, by the clock of the first tap."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.capture_files import EPOCH_US, START_US, SentPacket, frame_packet, ip, pcap, write_file
from veilcast.errors import ConfigError, TamperedError
from veilcast.lab import capture
from veilcast.lab.capture import taps
from veilcast.lab.capture.clocks import TIMES_MAX
from veilcast.observe import CellRow, InsiderRow, ObservationRow, PresenceRow, TableWriter, TopologyRow, TruthRow

NODES = ("127.0.0.1:4000", "127.0.0.1:4001", "[::1]:4002")


def network(count: int, seed: int = 1) -> list[CellRow]:
    """Every node sends to every other, unevenly."""
    rng, found = random.Random(seed), []
    for number in range(count):
        src, dst = rng.sample(NODES, 2)
        t_us = START_US + number * 30_000 + rng.randrange(25_000)
        found.append(CellRow("own", t_us // EPOCH_US, t_us, src, dst, 1200))
    return found


def tap(cells: list[CellRow], own: str, *, way_us: int = 300, ahead_us: int = 0, lost: int = 0) -> list[CellRow]:
    """The tap of one node; one of each `lost` datagrams does not arrive."""
    found = []
    for number, cell in enumerate(cells):
        if own == cell.src or (own == cell.dst and not (lost and number % lost == 0)):
            t_us = cell.t_us + (way_us if own == cell.dst else 0) + ahead_us
            found.append(CellRow("own", t_us // EPOCH_US, t_us, cell.src, cell.dst, cell.size))
    return sorted(found, key=lambda cell: cell.t_us)


def written(directory: Path, rows: list[ObservationRow]) -> Path:
    with TableWriter(directory) as tables:
        tables.extend(rows)
    return directory


def read(*paths: Path, step: int = 1 << 20) -> tuple[list[tuple[object, ...]], capture.ReadingReport]:
    table, notes = capture.read(paths, run="r", epoch_us=EPOCH_US, step=step)
    return sorted(tuple(row.values()) for row in table.to_pylist()), notes


def rows(cells: list[CellRow], run: str = "r") -> list[tuple[object, ...]]:
    return sorted((run, cell.epoch, cell.t_us, cell.src, cell.dst, cell.size) for cell in cells)


@pytest.mark.parametrize("step", [50, 1 << 20])
def test_a_simulation_is_read_as_it_was_written(step: int, tmp_path: Path) -> None:
    cells = network(300)
    found, notes = read(written(tmp_path, list(cells)), step=step)
    assert found == rows(cells, "own")
    assert (notes.files[0].format, notes.files[0].rows, notes.clocks, notes.remarks) == ("simulation", 300, (), ())


def test_each_datagram_is_one_cell_though_both_ends_have_a_tap_and_some_are_lost(tmp_path: Path) -> None:
    cells = network(600)
    paths = [written(tmp_path / str(number), list(tap(cells, own, lost=10))) for number, own in enumerate(NODES)]
    found, notes = read(*paths, step=5000)
    # Clocks are set to a few microseconds here, for what was lost one way shifts a median.
    assert [row[3:] for row in found] == [row[3:] for row in rows(cells)]
    assert max(abs(a[2] - b[2]) for a, b in zip(found, rows(cells), strict=True)) <= 5  # type: ignore[operator]
    assert [file.format for file in notes.files] == [f"tap of {own}" for own in NODES]


def test_a_tap_whose_clock_is_wrong_is_set_by_the_rhythm_of_its_links(tmp_path: Path) -> None:
    cells = network(600)
    paths = [
        written(tmp_path / str(number), list(tap(cells, own, ahead_us=ahead_us)))
        for number, (own, ahead_us) in enumerate(zip(NODES, (0, 7_000_000, -60_000_000), strict=True))
    ]
    found, notes = read(*paths)
    assert [row[3:] for row in found] == [row[3:] for row in rows(cells)]
    assert [clock.both_ways for clock in notes.clocks] == [True, True]
    assert max(abs(a[2] - b[2]) for a, b in zip(found, rows(cells), strict=True)) <= 5  # type: ignore[operator]


def test_cells_received_before_the_senders_tap_ran_are_kept(tmp_path: Path) -> None:
    cells = network(600)
    paths = [
        written(tmp_path / "0", list(tap(cells, NODES[0], way_us=0))),
        written(tmp_path / "1", list(tap(cells[200:], NODES[1], way_us=0))),
    ]
    wanted = [cell for cell in cells if NODES[0] in (cell.src, cell.dst) or cell in cells[200:]]
    found, _ = read(*paths)
    assert found == rows(
        [cell for cell in wanted if NODES[0] in (cell.src, cell.dst) or NODES[1] in (cell.src, cell.dst)]
    )


def test_two_taps_of_one_link_are_of_its_two_ends(tmp_path: Path) -> None:
    cells = [cell for cell in network(400) if NODES[2] not in (cell.src, cell.dst)]
    paths = [written(tmp_path / str(number), list(tap(cells, own, way_us=0))) for number, own in enumerate(NODES[:2])]
    found, notes = read(*paths)
    assert found == rows(cells)
    assert {file.format for file in notes.files} == {f"tap of {own}" for own in NODES[:2]}


def test_other_tables_are_read_where_they_are(tmp_path: Path) -> None:
    insider = InsiderRow("own", 1, 2, "a", "b", "advert", b"\0\1", b"token", b"", "")
    more: list[ObservationRow] = [
        TopologyRow("own", 1, "a", "b"),
        PresenceRow("own", 1, "a"),
        TruthRow("own", "t", "a", "publisher", 1, 2),
    ]
    path = written(tmp_path / "a", [*network(3), *more, insider])
    assert capture.read_table(
        [path, written(tmp_path / "b", [PresenceRow("own", 2, "b")])], PresenceRow
    ).to_pylist() == [
        {"run": "own", "epoch": 1, "node": "a"},
        {"run": "own", "epoch": 2, "node": "b"},
    ]
    assert capture.read_table([path], InsiderRow)["message"].to_pylist() == [b"\0\1"]
    assert len(capture.read_table([path], TruthRow)) == len(capture.read_table([path], TopologyRow)) == 1
    assert len(capture.read_table([tmp_path], TruthRow)) == 0


def test_a_line_that_was_not_finished_is_left_out_and_told(tmp_path: Path) -> None:
    cells = network(20)
    file = written(tmp_path, list(cells)) / "cells.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    for step in (70, 1 << 20):
        found, notes = read(tmp_path, step=step)
        assert found == rows(cells[:-1], "own")
        assert "bytes are no whole line" in notes.files[0].remarks[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'["r",1,2,"a","b"]\n', "length 6"),
        (b'["r",1,2,"a","b","c"]\n', "Expected `int`"),
        (b'["r",9223372036854775808,1,"a","b",1]\n', "9223372036854775807"),
        (b'["r",1,1152921504606846977,"a","b",1]\n', "1152921504606846976"),
        (b'["r",1,2,"\xff","b",1]\n', "utf-8"),
        (b"[\n", "truncated"),
    ],
)
def test_a_line_that_is_no_row_is_told_by_where_it_stands(line: bytes, told: str, tmp_path: Path) -> None:
    file = written(tmp_path, list(network(20))) / "cells.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + line + before)
    for step in (100, 1 << 20):
        with pytest.raises(TamperedError, match=f"at byte {len(before):,}, is no row of cells: .*{told}"):
            read(tmp_path, step=step)


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    file = written(tmp_path, list(network(20))) / "cells.jsonl"
    file.write_bytes(file.read_bytes() + b"x" * (2 * taps.LINE_MAX) + b"\n")
    with pytest.raises(TamperedError, match="it has a line of 1,048,576 bytes or more"):
        read(tmp_path, step=100)


def test_the_memory_of_a_tap_is_bounded() -> None:
    times: dict[str, dict[str, list[int]]] = {}
    for end in range(taps.ENDS_MAX + 5):
        taps.remember_times(times, "hub", str(end), list(range(TIMES_MAX + 5)))
        taps.remember_times(times, str(end), "hub", [1])
    assert len(times) == taps.ENDS_MAX
    assert len(times["hub"]) == taps.ENDS_MAX
    assert {len(several) for several in times["hub"].values()} == {TIMES_MAX}


def test_a_table_without_a_whole_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_bytes(b'["own",1,2')
    with pytest.raises(ConfigError, match=r"cells\.jsonl holds no whole row"):
        read(tmp_path)


def test_taps_and_captures_or_simulations_do_not_mix(tmp_path: Path) -> None:
    cells = network(200)
    single = written(tmp_path / "tap", list(tap(cells, NODES[0])))
    whole = written(tmp_path / "sim", list(cells))
    with pytest.raises(ConfigError, match=r"sim.* is no single node's tap"):
        read(single, whole)
    file = write_file(tmp_path, pcap([(START_US, frame_packet(ip(SentPacket(START_US)), 1))]))
    with pytest.raises(ConfigError, match=r"tap.cells.jsonl is a tap, and others are captures"):
        read(file, single)
    with pytest.raises(ConfigError, match="given twice"):
        read(single, single)
    with pytest.raises(ConfigError, match="no capture"):
        read()


def test_strangers_cannot_crowd_the_links_that_clocks_are_set_by_out_of_a_tap(tmp_path: Path) -> None:
    cells = network(600)
    flood = [
        CellRow("own", START_US // EPOCH_US, START_US + number, f"10.{number >> 8}.{number & 255}.1:9", NODES[1], 1200)
        for number in range(taps.ENDS_MAX)
    ]
    first = written(tmp_path / "0", list(tap(cells, NODES[0])))
    second = written(tmp_path / "1", [*flood, *tap(cells, NODES[1], ahead_us=7_000_000)])
    _, notes = capture.read([first, second], run="r", epoch_us=EPOCH_US)
    assert notes.clocks[0].against is None
    _, notes = capture.read([first, second], run="r", epoch_us=EPOCH_US, trusted=NODES)
    assert notes.clocks[0].ahead_us == pytest.approx(7_000_000, abs=5)

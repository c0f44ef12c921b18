from __future__ import annotations

import random
from pathlib import Path

import pytest

from veilcast.cli.tap import FLUSH_US, WireTap, open_tap
from veilcast.errors import StorageError
from veilcast.machine import Address
from veilcast.observe import CellRow, read_table
from veilcast.sim.flood import ID_SIZE, FloodNode

ME, PEER, OTHER = Address("127.1.0.1:4000"), Address("127.2.0.1:4000"), Address("127.3.0.1:4000")
NOTE = bytes(ID_SIZE) + b"text"


def flood() -> FloodNode:
    machine = FloodNode()
    for peer in (PEER, OTHER):
        machine.peer_up(peer, 0)
    return machine


class CellRows(list[CellRow]):
    """A table in memory; `fails` simulates a failing disk."""

    fails = False

    def append(self, row: CellRow) -> None:
        if self.fails:
            raise StorageError("no space left")
        super().append(row)

    def flush(self) -> None:
        pass


def drive(tap: WireTap) -> list[tuple[str, int]]:
    tap.receive(NOTE, PEER, 25)
    frames = tap.frames_to_send(31, 100)
    return [(frame.destination, len(frame.data)) for frame in frames]


def test_a_tap_writes_inbound_and_outbound_frames_in_the_columns_of_the_lab(tmp_path: Path) -> None:
    with open_tap(tmp_path / "t", "r") as around:
        tap = around(flood(), ME, 10)
        assert isinstance(tap, WireTap)
        sent = drive(tap)
    assert sent
    rows = list(read_table(tmp_path / "t", CellRow))
    assert rows[0] == CellRow("r", 2, 25, PEER, ME, len(NOTE))
    assert rows[1:] == [CellRow("r", 3, 31, ME, peer, size) for peer, size in sent]
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0


def test_rows_can_be_followed_a_second_later(tmp_path: Path) -> None:
    with open_tap(tmp_path, "r") as around:
        tap = around(flood(), ME, 10)
        for now in (FLUSH_US, FLUSH_US + 1, 2 * FLUSH_US):
            tap.receive(NOTE, PEER, now)
            written = len(list(read_table(tmp_path, CellRow)))
            assert written == {FLUSH_US: 1, FLUSH_US + 1: 1, 2 * FLUSH_US: 3}[now]


def test_only_the_owner_can_read_the_file_of_a_tap(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    table = tmp_path / "cells.jsonl"
    table.touch(0o644)
    with open_tap(tmp_path, "r") as around:
        around(flood(), ME, 10).receive(NOTE, PEER, 25)
    assert len(list(read_table(tmp_path, CellRow))) == 1
    assert table.stat().st_mode & 0o077 == 0


def test_a_tapped_machine_behaves_as_without_a_tap() -> None:
    rng = random.Random(1)
    bare = flood()
    tapped_one = WireTap(flood(), CellRows(), ME, run="r", epoch_us=10)
    for now in range(50):
        data = rng.randbytes(ID_SIZE) + b"x" if rng.random() < 0.8 else b"bad"
        results = []
        for machine in (bare, tapped_one):
            machine.receive(data, PEER, now)
            machine.handle_timer(now)
            results.append((machine.frames_to_send(now, 1), machine.next_event(), machine.next_timer()))
        assert results[0] == results[1]


def test_a_full_tap_and_a_failing_disk_end_the_record_and_not_the_node() -> None:
    full = CellRows()
    tap = WireTap(flood(), full, ME, run="r", epoch_us=10, rows_max=1)
    assert drive(tap) == drive(WireTap(flood(), CellRows(), ME, run="r", epoch_us=10))
    assert len(full) == 1
    broken = CellRows()
    broken.fails = True
    tap = WireTap(flood(), broken, ME, run="r", epoch_us=10)
    assert drive(tap)
    broken.fails = False
    tap.receive(NOTE, PEER, 40)
    assert broken == []


def test_the_tap_is_off_unless_asked_for_and_warns_loudly(tmp_path: Path) -> None:
    import argparse

    from veilcast.cli.context import Context
    from veilcast.cli.node import _tap
    from veilcast.node.config import NodeConfig

    config = NodeConfig(keyring="k", listen=ME)
    said: list[str] = []
    context = Context(warn=said.append)
    with _tap(argparse.Namespace(danger_tap=None), config, context) as around:
        assert around is None
    assert said == []
    with _tap(argparse.Namespace(danger_tap=tmp_path / "t"), config, context) as around:
        assert around is not None
    assert len(said) == 1
    assert said[0].startswith("DANGER")


@pytest.mark.parametrize("limit", [1, 100])
def test_a_tap_records_only_frames_that_the_driver_takes(limit: int) -> None:
    rows = CellRows()
    machine = flood()
    machine.publish(bytes(ID_SIZE), b"text")
    tap = WireTap(machine, rows, ME, run="r", epoch_us=10)
    assert len(tap.frames_to_send(5, limit)) == len(rows) == min(limit, 2)


class NoticedMachine:
    """A machine with peers that come and go."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Address, int]] = []

    def peer_up(self, peer: Address, now: int) -> None:
        self.heard.append(("up", peer, now))

    def peer_lost(self, peer: Address, now: int) -> None:
        self.heard.append(("lost", peer, now))


def test_the_wrapped_machine_receives_peer_notices_if_it_has_the_methods() -> None:
    inner = NoticedMachine()
    for tap in (WireTap(machine, CellRows(), ME, run="r", epoch_us=10) for machine in (inner, flood())):  # type: ignore[arg-type]
        tap.peer_up(PEER, 1)
        tap.peer_lost(PEER, 2)
    assert inner.heard == [("up", PEER, 1), ("lost", PEER, 2)]

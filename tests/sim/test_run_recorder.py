"""The tables hold what happened: a cell a frame, a row a pair, node and epoch, and the truth apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.frame_adversaries import ScriptedPeer
from veilcast.machine import Address, Frame
from veilcast.observe import CellRow, ObservationRow, PresenceRow, TableWriter, TopologyRow, TruthRow, read_table
from veilcast.sim import scenario
from veilcast.sim.links import LinkDelays, Weather
from veilcast.sim.world import World

A, B, C = Address("a"), Address("b"), Address("c")
EPOCH = 1_000_000


class Rows(list[ObservationRow]):
    def of(self, kind: type[ObservationRow]) -> list[tuple[object, ...]]:
        return [tuple(getattr(row, name) for name in row.__struct_fields__[1:]) for row in self if type(row) is kind]


def world_of_two(rows: Rows) -> World:
    world = World(seed=1, links=LinkDelays(latency_us=(1_000,)), recorder=rows, run="r", epoch_us=EPOCH)
    frames = [(world.start + time, Frame(B, b"12345")) for time in (100, EPOCH + 7)]
    world.add(A, lambda birth: ScriptedPeer(frames))
    world.add(B, lambda birth: ScriptedPeer())
    return world


def test_cells_are_the_frames_sent_lost_ones_too() -> None:
    rows = Rows()
    world = world_of_two(rows)
    world.set_weather(Weather(loss_ppm=1_000_000))
    world.set_clock(A, offset_us=-50, drift_ppm=0)
    world.run(2 * EPOCH)
    first = world.start // EPOCH
    assert rows.of(CellRow) == [
        (first, world.start + 150, "a", "b", 5),
        (first + 1, world.start + EPOCH + 57, "a", "b", 5),
    ]
    assert world.counts.lost == 2


@pytest.mark.parametrize("pieces", [1, 40])
def test_pairs_and_nodes_stand_once_in_every_epoch_in_which_they_were_up(pieces: int) -> None:
    rows = Rows()
    world = world_of_two(rows)
    world.connect(B, A)
    first = world.start // EPOCH
    world.after(EPOCH // 2, lambda: world.crash(B))
    world.after(EPOCH * 5 // 2, lambda: world.restart(B))
    for _ in range(pieces):
        world.run(4 * EPOCH // pieces)
    assert rows.of(TopologyRow) == [(epoch, "a", "b") for epoch in (first, first + 2, first + 3, first + 4)]
    present = rows.of(PresenceRow)
    assert [epoch - first for epoch, node in present if node == "a" and isinstance(epoch, int)] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert [epoch - first for epoch, node in present if node == "b" and isinstance(epoch, int)] == [
        0,
        2,
        3,
        4,
    ]


def test_truth_is_written_apart() -> None:
    rows = Rows()
    world = world_of_two(rows)
    world.label("news", A, "publisher", 1, 2)
    assert rows.of(TruthRow) == [("news", "a", "publisher", 1, 2)]
    World(seed=1).label("news", A, "publisher", 1, 2)


def test_a_scenario_fills_the_files_of_the_lab(tmp_path: Path) -> None:
    with TableWriter(tmp_path) as writer:
        outcome = scenario.run_scenario(scenario.load_scenario("flood-storm"), 3, writer)
    cells = list(read_table(tmp_path, CellRow))
    assert len(cells) == outcome.counts.sent
    assert [cell.t_us for cell in cells] == sorted(cell.t_us for cell in cells)
    assert all(pair.u < pair.v for pair in read_table(tmp_path, TopologyRow))
    roles = dict.fromkeys(truth.role for truth in read_table(tmp_path, TruthRow))
    assert sorted(roles) == ["publisher", "subscriber"]


def test_recording_does_not_change_the_run() -> None:
    flood = scenario.load_scenario("flood")
    assert scenario.run_scenario(flood, 3, Rows()) == scenario.run_scenario(flood, 3)

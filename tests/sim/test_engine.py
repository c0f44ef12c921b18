"""The engine drives machines by the contract, and a run is decided by its seed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.frame_adversaries import ScriptedPeer
from veilcast.machine import Address, Event, Frame, Listen
from veilcast.observe import CellRow, ObservationRow
from veilcast.sim import engine, scenario
from veilcast.sim.engine import FRAMES_LIMIT, SimulationError
from veilcast.sim.faults import SWARM_KINDS, draw_swarm, inject_faults
from veilcast.sim.flood import ID_SIZE, FloodNode
from veilcast.sim.links import LinkDelays
from veilcast.sim.recorder import RowSink
from veilcast.sim.world import World

A, B = Address("a"), Address("b")


def ring(seed: int, kinds: tuple[str, ...] = (), nodes: int = 12) -> World:
    """Floods on a ring, under a swarm of faults of these kinds."""
    world = World(seed=seed, links=LinkDelays(jitter_us=(0, 5_000)))
    addresses = [Address(f"n{i}") for i in range(nodes)]
    for address in addresses:
        world.add(address, lambda birth: FloodNode())
    for u, v in pairwise([*addresses, addresses[0]]):
        world.connect(u, v)
    for number in range(8):
        plan_message(world, addresses[number % nodes], number)
    inject_faults(world, draw_swarm(seed, addresses, 2_000_000, kinds))
    return world


def plan_message(world: World, publisher: Address, number: int) -> None:
    def publish(machine: FloodNode, now: int) -> None:
        machine.publish(number.to_bytes(ID_SIZE, "big"), b"x")

    world.after(number * 100_000, lambda: world.call(publisher, publish))


# --- determinism --------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    hashes = []
    for seed in (1, 1, 2):
        world = ring(seed, SWARM_KINDS)
        world.run(3_000_000)
        hashes.append(world.trace_hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_trace_does_not_depend_on_hash_randomisation() -> None:
    program = (
        "from veilcast.sim import scenario as s; print(s.run_scenario(s.load_scenario('flood-storm'), 5).trace_hash)"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0].strip()) == 64


def test_the_trace_is_the_same_on_every_machine() -> None:
    # Change this only together with something that is meant to change what can be observed of this run.
    assert scenario.run_scenario(scenario.load_scenario("flood-storm"), 5).trace_hash[:16] == "3608524c2481062a"


class Rows:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[ObservationRow] = []

    def append(self, row: ObservationRow) -> None:
        self.rows.append(row)


def calm(recorder: RowSink | None) -> str:
    """Enough frames for several chunks of the trace, in batches that no chunk is a multiple of."""
    world = World(seed=1, links=LinkDelays(latency_us=(10,)), recorder=recorder)
    for address in (A, B):
        world.add(address, lambda birth: Talker(0))
    for _ in range(300):
        world.call(A, lambda machine, now: machine.left.extend([Frame(B, b"x")] * 61))
    world.run(10)
    return world.trace_hash


def test_the_trace_does_not_depend_on_who_records() -> None:
    assert calm(None) == calm(Rows())


def test_the_trace_of_the_plain_path_is_the_same_on_every_machine() -> None:
    # As above: change it only with what can be observed.
    assert calm(None)[:16] == "0df497f4fd2a5f33"


@pytest.mark.parametrize("trouble", ["blocked", "overtaking"])
def test_frames_sent_at_different_times_are_told_apart_whatever_becomes_of_them(trouble: str) -> None:
    def trace(at_us: int) -> tuple[str, list[ObservationRow]]:
        recorder = Rows()
        jitter_us = (0, 900_000) if trouble == "overtaking" else (0,)
        world = World(seed=2, links=LinkDelays(latency_us=(10,), jitter_us=jitter_us), recorder=recorder)
        for address in (A, B):
            world.add(address, lambda birth: Talker(1))
        if trouble == "blocked":
            world.block(A, B)
        # With jitter, the second frame waits behind the first: it arrives at one time whenever it is sent.
        world.after(at_us, lambda: world.call(A, lambda machine, now: machine.left.append(Frame(B, b"x"))))
        world.run(1_000_000)
        return world.trace_hash, [row for row in recorder.rows if isinstance(row, CellRow)]

    one, other = trace(5), trace(50)
    assert one[1] != other[1]
    assert one[0] != other[0]


def test_a_run_in_pieces_is_the_run_in_one() -> None:
    whole, pieces = ring(4, SWARM_KINDS), ring(4, SWARM_KINDS)
    whole.run(3_000_000)
    for _ in range(300):
        pieces.run(10_000)
    assert pieces.trace_hash == whole.trace_hash
    assert pieces.counts == whole.counts
    assert pieces.now == whole.now


def test_every_single_byte_counts_in_the_trace() -> None:
    def trace(data: bytes) -> str:
        world = World(seed=1)
        world.add(A, lambda birth: ScriptedPeer([(birth.now + 5, Frame(B, data))]))
        world.run(1_000_000)
        return world.trace_hash

    assert trace(b"x") == trace(b"x") != trace(b"y")


# --- conservation -------------------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(SWARM_KINDS), unique=True).map(tuple),
    st.lists(st.integers(0, 700_000), max_size=5),
)
def test_no_frame_is_made_or_destroyed_unseen(seed: int, kinds: tuple[str, ...], pieces: list[int]) -> None:
    world = ring(seed, kinds)
    for piece in pieces:
        world.run(piece)
        counts = world.counts
        assert counts.sent + counts.duplicated == counts.delivered + counts.lost + counts.in_flight
    world.run(10_000_000)
    assert world.counts.in_flight == 0


# --- the contract -------------------------------------------------------------------------------------------


class Talker(ScriptedPeer):
    """Has many frames at once, and writes down every call."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.left = [Frame(B, b"%d" % number) for number in range(frames)]
        self.limits: list[int] = []

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self.limits.append(limit)
        frames, self.left = self.left[:limit], self.left[limit:]
        return frames


def test_a_machine_with_many_frames_is_asked_until_it_has_none() -> None:
    world = World(seed=1)
    world.add(A, lambda birth: Talker(3 * FRAMES_LIMIT))
    world.add(B, lambda birth: ScriptedPeer())
    world.run(0)
    assert world.machine(A).limits == [FRAMES_LIMIT] * 4
    world.run(1_000_000)
    assert [data for _, _, data in world.machine(B).received] == [b"%d" % n for n in range(3 * FRAMES_LIMIT)]


class Restless(ScriptedPeer):
    """Moves its one deadline to and fro at every call; counts its wake-ups."""

    def __init__(self, now: int) -> None:
        super().__init__()
        self.deadlines = [now + 900_000, now + 10_000, now + 900_000, now + 400_000, now + 900_000]
        self.fired: list[int] = []

    def poke(self) -> None:
        self.deadlines.append(self.deadlines.pop(0))

    def next_timer(self) -> int | None:
        return self.deadlines[0] if self.deadlines else None

    def handle_timer(self, now: int) -> None:
        self.fired.append(now)
        self.deadlines = []


def test_only_the_last_deadline_named_counts() -> None:
    world = World(seed=1)
    world.add(A, lambda birth: Restless(birth.now))
    for _ in range(4):
        world.call(A, lambda machine, now: machine.poke())
    world.run(899_999)
    assert world.machine(A).fired == []
    world.run(1)
    assert world.machine(A).fired == [world.start + 900_000]
    world.run(10_000_000)
    assert len(world.machine(A).fired) == 1


def test_moving_a_deadline_to_and_fro_fills_no_queue() -> None:
    world = World(seed=1)
    world.add(A, lambda birth: Restless(birth.now))
    for _ in range(1_000):
        world.call(A, lambda machine, now: machine.poke())
    world.run(0)
    assert len(list(world._queue)) <= 3


def test_frames_to_addresses_nobody_has_are_lost() -> None:
    world = World(seed=1)
    world.add(A, lambda birth: ScriptedPeer([(birth.now, Frame(Address("nobody"), b"x"))]))
    world.run(1_000_000)
    assert (world.counts.sent, world.counts.lost) == (1, 1)


def test_the_collector_is_as_it_was_after_a_run() -> None:
    world = World(seed=1)
    world.run(10)
    assert gc.isenabled()
    gc.disable()
    try:
        world.run(10)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_run_after_an_interrupted_one_is_as_long_as_it_says() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    world = World(seed=1)
    world.add(A, lambda birth: ScriptedPeer())
    world.after(5, interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.run(100)
    world.run(1_000)
    assert world.now == world.start + 1_005
    assert list(world._queue) == []


# --- machines that break it ---------------------------------------------------------------------------------


class Broken(ScriptedPeer):
    def receive(self, data: bytes, source: Address, now: int) -> None:
        raise ZeroDivisionError("planted")


class Stuck(ScriptedPeer):
    def next_timer(self) -> int | None:
        return 0


class Greedy(ScriptedPeer):
    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [Frame(B, b"")] * (limit + 1)


class Endless(ScriptedPeer):
    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [Frame(B, b"")] * limit


class Chatty(ScriptedPeer):
    def next_event(self) -> Event | None:
        return Listen("all")


@pytest.mark.parametrize(
    ("machine", "match"),
    [
        (Broken, "ZeroDivisionError.*planted"),
        (Stuck, "stays due"),
        (Greedy, "were allowed"),
        (Endless, "never end"),
        (Chatty, "50 events"),
    ],
)
def test_a_machine_that_breaks_the_contract_ends_the_run_with_the_replay_command(
    machine: type[ScriptedPeer], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TURNS_LIMIT", 50)
    monkeypatch.setattr(engine, "EVENTS_LIMIT", 50)
    world = World(seed=1, replay="veilcast sim run x --seed 1")
    world.add(A, lambda birth: machine())
    world.add(B, lambda birth: ScriptedPeer([(birth.now, Frame(A, b""))]))
    with pytest.raises(SimulationError, match=match) as first:
        world.run(1_000_000)
    assert "replay: veilcast sim run x --seed 1" in str(first.value)
    assert str(first.value).startswith("a: ")
    with pytest.raises(SimulationError) as second:
        world.run(1)
    assert second.value is first.value
    counts = world.counts
    assert counts.sent + counts.duplicated == counts.delivered + counts.lost + counts.in_flight


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HOSTS_LIMIT", 10)
    world = World(seed=1)
    script = [(0, Frame(Address(f"made up {number}"), b"")) for number in range(20)]
    world.add(A, lambda birth: ScriptedPeer(script))
    with pytest.raises(SimulationError, match="addresses"):
        world.run(1_000_000)

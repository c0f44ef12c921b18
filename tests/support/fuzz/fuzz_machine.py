"""Machines as targets: bytes into `receive()`, where nothing may be raised at all.

A machine is taken out of a small running network, together with the frames that it received there: these are the valid
examples. An input is a script (`fuzz_script`). The step of a record chooses the peer (a known one or a stranger), how
far the clock moves, and whether timers run. The machine's own frames are dropped, and its records are stored at once. A
machine keeps its state from one input to the next. After `INPUTS` inputs a new machine replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from support.fuzz.fuzz_script import read_script, script
from support.fuzz.fuzz_target import Format, Prepared
from veilcast.machine import Address, Connect, Delivered, Event, Record

STRANGER = Address("192.0.2.99:4000")
MOVES_US = (0, 1_000, 250_000, 20_000_000)
INPUTS = 300
EXAMPLES = 60


@dataclass
class RunningMachine:
    """A running machine, its peers, and the frames that they sent it: pairs of the peer and the bytes."""

    machine: Any
    now: int
    heard: list[tuple[Address, bytes]]
    wrap: Callable[[bytes, int], bytes] = field(default=lambda data, now: data)
    """Applied to each record before the machine receives it, such as sealing it for its link."""

    @property
    def peers(self) -> list[Address]:
        return [*dict.fromkeys(source for source, _ in self.heard), STRANGER]


def prepare(build: Callable[[], RunningMachine], skip: int = 1) -> Prepared:
    """`skip` is the number of bytes before the MessagePack of a record."""
    stage = _Stage(build)
    live = stage.live
    steps = {peer: at for at, peer in enumerate(live.peers)}
    chosen = _spread_kinds(live.heard)
    records = [(steps[source] % 32, data) for source, data in chosen if len(data) < 1 << 16]
    examples = [script([each]) for each in records] + [script(list(pair)) for pair in pairwise(records)]
    longest = max((len(each) for each in examples), default=0)
    return Prepared(stage.check, (), examples, Format.SCRIPT, skip=skip, max_len=max(4096, longest + 64))


@contextmanager
def record_received(machine: Any) -> Iterator[list[tuple[Address, bytes]]]:
    """Records the frames that a machine receives meanwhile."""
    heard: list[tuple[Address, bytes]] = []
    receive = machine.receive

    def listen(data: bytes, source: Address, now: int) -> None:
        heard.append((source, data))
        receive(data, source, now)

    machine.receive = listen
    try:
        yield heard
    finally:
        del machine.receive


class _Stage:
    def __init__(self, build: Callable[[], RunningMachine]) -> None:
        self._build, self.live, self._left = build, build(), INPUTS

    def check(self, data: bytes) -> object:
        if not self._left:
            self.live, self._left = self._build(), INPUTS
        self._left -= 1
        try:
            return _play(self.live, data)
        except Exception as error:
            used, self.live, self._left = INPUTS - self._left, self._build(), INPUTS
            _play(self.live, data)
            error.add_note(f"a new machine takes this input; this one had seen {used} inputs since it was made")
            raise


def _play(live: RunningMachine, data: bytes) -> object:
    machine, peers, told = live.machine, live.peers, 0
    for step, content in read_script(data):
        live.now += MOVES_US[step >> 6]
        machine.receive(live.wrap(content, live.now), peers[(step & 31) % len(peers)], live.now)
        if step & 32:
            machine.handle_timer(live.now)
        told += _drain(machine, live.now)
    return told


def _drain(machine: Any, now: int) -> int:
    """Do what a driver does after each step. Returns the number of frames and events."""
    done = len(machine.frames_to_send(now, 1 << 16))
    for _ in range(1000):
        event: Event | None = machine.next_event()
        match event:
            case None:
                return done
            case Record(record, _):
                machine.stored(record, now)
            case Connect(peer):
                machine.peer_lost(peer, now)
            case Delivered(_, note):
                machine.acknowledge(note.id, now)
        done += 1
    raise AssertionError("a machine that never ends to speak")


def _spread_kinds(heard: list[tuple[Address, bytes]]) -> list[tuple[Address, bytes]]:
    """One of each kind of message (by its first byte and size) before more of the same."""
    seen: dict[tuple[bytes, int], int] = {}
    ranked = []
    for at, (source, data) in enumerate(heard):
        kind = (data[:1], len(data).bit_length())
        seen[kind] = seen.get(kind, 0) + 1
        ranked.append((seen[kind], at, source, data))
    return [(source, data) for _, _, source, data in sorted(ranked)[:EXAMPLES]]

"""A machine whose steps take time: what came of a step leaves when it is over, and what comes meanwhile waits."""

from __future__ import annotations

from collections import deque

from veilcast.lab.runs.brokers.timed_machine import TimedMachine
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication
from veilcast.topics import Label

PEER = Address("peer")


class Echo:
    """Answers every frame at once, tells of it, and has a timer."""

    def __init__(self, clock: list[int]) -> None:
        self.clock = clock
        self.timer: int | None = None
        self.out: deque[Frame] = deque()
        self.events: deque[Event] = deque()
        self.told: list[tuple[str, int]] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.clock[0] += len(data)
        self.out.append(Frame(source, data))
        self.events.append(Delivered(1, Note(b"i" * 16, Publication((Label("a").pair,), data))))
        self.told.append(("receive", now))

    def handle_timer(self, now: int) -> None:
        self.timer = None
        self.told.append(("timer", now))

    def next_timer(self) -> int | None:
        return self.timer

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self.out.popleft() for _ in range(min(limit, len(self.out)))]

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None

    def peer_up(self, peer: Address, now: int) -> None:
        self.clock[0] += 5
        self.told.append((str(peer), now))


def working() -> tuple[TimedMachine, Echo]:
    clock = [0]
    echo = Echo(clock)
    return TimedMachine(echo, lambda: clock[0]), echo


def test_what_came_of_a_step_leaves_when_it_is_over() -> None:
    machine, _ = working()
    machine.receive(b"x" * 70, PEER, 1_000)
    assert machine.frames_to_send(1_069, 9) == []
    assert machine.next_event() is None
    assert machine.next_timer() == 1_070
    assert machine.frames_to_send(1_070, 9) == [Frame(PEER, b"x" * 70)]
    assert machine.next_event() is not None
    assert machine.next_timer() is None


def test_what_comes_meanwhile_waits_in_line_and_timers_after_it() -> None:
    machine, echo = working()
    machine.receive(b"x" * 70, PEER, 1_000)
    machine.receive(b"y" * 30, PEER, 1_010)
    machine.peer_up(PEER, 1_020)
    echo.timer = 1_030
    assert echo.told == [("receive", 1_000)]
    for now in (1_069, 1_070, 1_100, 1_105):
        machine.handle_timer(now)
    assert echo.told == [("receive", 1_000), ("receive", 1_070), ("peer", 1_100), ("timer", 1_105)]
    assert [frame.data[:1] for frame in machine.frames_to_send(1_105, 9)] == [b"x", b"y"]


def test_an_owner_waits_in_the_same_line_and_limits_hold() -> None:
    machine, echo = working()
    machine.receive(b"x" * 10, PEER, 0)
    machine.run_step(lambda now: echo.receive(b"z", PEER, now), 0)
    assert machine.next_timer() == 10
    machine.handle_timer(10)
    assert machine.frames_to_send(11, 1) == [Frame(PEER, b"x" * 10)]
    assert machine.frames_to_send(11, 1) == [Frame(PEER, b"z")]

"""A busy machine: received and sent frames wait for one processor."""

from __future__ import annotations

from veilcast.machine import Address, Event, Frame
from veilcast.sim.busy_machine import BusyMachine

PEER = Address("peer")


class Echo:
    """Sends everything back, as often as its first byte says."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.told: list[str] = []
        self._frames: list[Frame] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.taken.append((now, data))
        self._frames += [Frame(source, data)] * data[0]

    def handle_timer(self, now: int) -> None: ...

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None

    def peer_up(self, peer: Address, now: int) -> None:
        self.told.append("up")

    def peer_lost(self, peer: Address, now: int) -> None:
        self.told.append("lost")

    def stored(self, record: int, now: int) -> None:
        self.told.append("stored")


def run(host: BusyMachine) -> list[tuple[int, bytes]]:
    """Let virtual time pass until nothing is left to do. Returns the frames that left, with their times."""
    sent = []
    while (now := host.next_timer()) is not None:
        host.handle_timer(now)
        sent += [(now, frame.data) for frame in host.frames_to_send(now, 8)]
    return sent


def test_frames_that_come_together_are_taken_in_one_after_the_other() -> None:
    echo = Echo()
    host = BusyMachine(echo, lambda _: 10, lambda _: 0)
    for _ in range(3):
        host.receive(b"\0", PEER, 100)
    assert run(host) == []
    assert echo.taken == [(110, b"\0"), (120, b"\0"), (130, b"\0")]


def test_a_thousand_copies_leave_one_after_the_other_and_keep_the_next_request_waiting() -> None:
    echo = Echo()
    host = BusyMachine(echo, lambda _: 10, lambda _: 5)
    host.receive(b"\3", PEER, 0)
    host.receive(b"\1", PEER, 0)
    assert run(host) == [(15, b"\3"), (20, b"\3"), (25, b"\3"), (40, b"\1")]
    assert [at for at, _ in echo.taken] == [10, 35]


def test_who_had_nothing_to_do_begins_at_once() -> None:
    host = BusyMachine(Echo(), lambda _: 10, lambda _: 5)
    host.receive(b"\1", PEER, 0)
    assert run(host) == [(15, b"\1")]
    host.receive(b"\1", PEER, 1_000)
    assert run(host) == [(1_015, b"\1")]


def test_no_more_leaves_at_once_than_the_driver_takes() -> None:
    host = BusyMachine(Echo(), lambda _: 0, lambda _: 0)
    host.receive(b"\7", PEER, 0)
    host.handle_timer(0)
    assert [len(host.frames_to_send(0, 4)), len(host.frames_to_send(0, 4))] == [4, 3]


def test_notices_are_passed_on() -> None:
    echo = Echo()
    host = BusyMachine(echo, lambda _: 0, lambda _: 0)
    host.peer_up(PEER, 0)
    host.stored(1, 0)
    host.peer_lost(PEER, 0)
    assert echo.told == ["up", "stored", "lost"]

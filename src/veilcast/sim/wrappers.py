"""Wrappers: machines that contain a machine and change its traffic. They are the base of adversaries, and they stack.

A wrapper draws from the `rng` that it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from veilcast.machine import Address, Event, Frame, Machine


class MachineWrapper:
    """Passes everything through in both directions, and notices if the inner machine has them; the base of all
    wrappers."""

    def __init__(self, inner: Machine) -> None:
        self._inner = inner

    @property
    def inner(self) -> Any:
        return self._inner

    @property
    def version(self) -> int:
        return int(self.inner.version)  # No default: a machine without a version must not escape its checkers.

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._inner.receive(data, source, now)

    def handle_timer(self, now: int) -> None:
        self._inner.handle_timer(now)

    def next_timer(self) -> int | None:
        return self._inner.next_timer()

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._inner.frames_to_send(now, limit)

    def next_event(self) -> Event | None:
        return self._inner.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self._notify("peer_up", peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._notify("peer_lost", peer, now)

    def stored(self, record: int, now: int) -> None:
        self._notify("stored", record, now)

    def _frames_of_inner(self, now: int, limit: int) -> list[Frame]:
        """All frames of the inner machine, for wrappers that change the number of frames.

        A driver asks again only after a full batch, so frames left inside could be stuck there.
        """
        frames = batch = self._inner.frames_to_send(now, limit)
        while len(batch) == limit:
            batch = self._inner.frames_to_send(now, limit)
            frames = frames + batch
        return frames

    def _notify(self, notice: str, about: Address | int, now: int) -> None:
        method = getattr(self._inner, notice, None)
        if method is not None:
            method(about, now)


def iterate_layers(machine: Any) -> Iterator[Any]:
    """A machine, the machine that it wraps, and so on to the innermost."""
    while machine is not None:
        yield machine
        machine = getattr(machine, "inner", None)


def unwrap(machine: Any) -> Any:
    """The machine inside all wrappers and links."""
    while (inner := getattr(machine, "inner", None)) is not None:
        machine = inner
    return machine


class Delayer(MachineWrapper):
    """Delays every frame of its machine by a fixed time; with more than `MEMORY_MAX` waiting, the oldest are lost."""

    def __init__(self, inner: Machine, delay_us: int) -> None:
        super().__init__(inner)
        self._delay_us = delay_us
        self._waiting: deque[tuple[int, Frame]] = deque(maxlen=MEMORY_MAX)

    def next_timer(self) -> int | None:
        inner = super().next_timer()
        if not self._waiting:
            return inner
        due = self._waiting[0][0]
        return due if inner is None else min(due, inner)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._waiting += [(now + self._delay_us, frame) for frame in self._frames_of_inner(now, limit)]
        frames: list[Frame] = []
        while self._waiting and self._waiting[0][0] <= now and len(frames) < limit:
            frames.append(self._waiting.popleft()[1])
        return frames


MEMORY_MAX: Final = 4096
